package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"
)

// refused opens the file, which must fail with an error that names it and says each of the words.
func refused(t *testing.T, path string, words ...string) error {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err == nil {
		require.NoError(t, s.Close())
	}
	require.Error(t, err)
	require.ErrorContains(t, err, filepath.Base(path))
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
	return err
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", ":memory:", "a\x00b"} {
		_, err := Open(t.Context(), path)
		require.ErrorContains(t, err, "names no file", path)
	}
	for _, uri := range []string{"file:runs.db", "file:///runs.db?mode=ro"} {
		_, err := Open(t.Context(), uri)
		require.ErrorContains(t, err, "is a URI; give the path", uri)
	}
	_ = refused(t, t.TempDir(), "is a folder")
	_ = refused(t, filepath.Join(t.TempDir(), "missing", "runs.db"), "make its folder first")
	if runtime.GOOS != "windows" {
		_ = refused(t, os.DevNull, "not a regular file")
	}
}

func TestOpenRefusesWhatIsNoDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.txt")
	text := []byte(strings.Repeat("these are my notes\n", 500))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_ = refused(t, path, "not a SQLite database")
	still, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, still)
}

func TestOpenRefusesAnotherProgramsDatabase(t *testing.T) {
	t.Parallel()
	for name, setUp := range map[string][]string{
		"tables":         {`CREATE TABLE bookmarks (url TEXT)`},
		"application ID": {`PRAGMA application_id = 42`},
		"version":        {`PRAGMA user_version = 1`},
	} {
		path := filepath.Join(t.TempDir(), "other.db")
		other := tool(t, path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
		for _, q := range setUp {
			query(t, other, q)
		}
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.ErrorIs(t, refused(t, path), ErrForeignFile, name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after, "%s: the other program's file", name)
	}
}

func TestOpenTakesAnEmptyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	create(t, open(t, path), sample("a"))
}

func TestOpenRefusesADamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	for i := range 50 {
		create(t, s, sample(strings.Repeat("x", i+1)))
	}
	require.NoError(t, s.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 100; i < 4096; i++ { // the page with the schema
		b[i] = 0xa5
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
	_ = refused(t, path, "damaged", ".recover")
	still, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b, still, "a damaged file is left for the one who repairs it")
}

func TestDamageIsToldByTheReadThatMeetsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	for i := range 50 {
		create(t, s, sample(strings.Repeat("x", i+1)))
	}
	require.NoError(t, s.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := len(b) - 4*4096; i < len(b); i++ { // the pages that came last, with the runs
		b[i] = 0xa5
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
	s, err = Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i := range 50 {
		if _, err = s.Get(t.Context(), sample(strings.Repeat("x", i+1)).Key); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "damaged")
	require.ErrorContains(t, err, path)
}

func TestOpenInAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "runs.db")
	_, err := Open(ctx, path)
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, path)
}

// TestOpenGivesUpWithItsContext: another process holds the file, and the busy timeout is longer than the caller's patience.
func TestOpenGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	other := tool(t, path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	query(t, other, `BEGIN EXCLUSIVE`)
	_, err := Open(t.Context(), path, WithBusyTimeout(0))
	require.ErrorContains(t, err, "locked for longer than the busy timeout")
	query(t, other, `ROLLBACK`)
	create(t, open(t, path), sample("a"))
}

func TestPathIsOneFileWhereverTheProcessIs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("data", 0o700))
	require.NoError(t, os.Symlink(filepath.Join("data", "runs.db"), "link.db"))
	s := open(t, filepath.Join("data", "runs.db"))
	rec := create(t, s, sample("a"))
	t.Chdir(t.TempDir())
	linked := open(t, filepath.Join(dir, "link.db"))
	require.Equal(t, rec.WriteID, get(t, linked, rec.Key).WriteID)
	commit(t, linked, rec, stepDone(rec, 0, `1`))
	commit(t, s, rec, stepDone(rec, 1, `2`))
	if runtime.GOOS == "linux" {
		require.FileExists(t, filepath.Join(dir, "data", "runs.db.turn"))
		require.NoFileExists(t, filepath.Join(dir, "link.db.turn"))
	}
}

func TestTheFileIsSetUpForDurability(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := tool(t, s.path, zombiezen.OpenReadOnly)
	require.Equal(t, [][]string{{"wal"}}, query(t, c, `PRAGMA journal_mode`))
	require.Equal(t, [][]string{{strconv.Itoa(applicationID)}}, query(t, c, `PRAGMA application_id`))
	var sync, n int64
	require.NoError(t, s.write(t.Context(), "test", "", func(tx *tx) (answer, err error) {
		if sync, err = tx.c.number(`PRAGMA synchronous`); err == nil {
			n, err = tx.c.number(`PRAGMA user_version`)
		}
		return nil, err
	}))
	require.EqualValues(t, 2, sync, "FULL")
	require.EqualValues(t, len(migrations), n)
}

func TestCloseIsIdempotentAndFinal(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	rec := create(t, s, sample("a"))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	ctx := t.Context()
	_, err := s.Create(ctx, sample("b"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Commit(ctx, follow(rec)), ErrClosed)
	require.ErrorIs(t, s.Delete(ctx, rec.Key), ErrClosed)
	_, err = s.Get(ctx, rec.Key)
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Claim(ctx, 1, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = s.Parked(ctx, "")
	require.ErrorIs(t, err, ErrClosed)
	require.NoFileExists(t, s.path+"-wal", "the last to close a file leaves nothing beside it but the turn")
	require.Equal(t, rec.WriteID, get(t, open(t, s.path), rec.Key).WriteID)
}

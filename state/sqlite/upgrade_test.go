package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"
)

// later are migrations as a later version of the library may have them.
var later = append(append([]migration{}, migrations...),
	`ALTER TABLE run_about ADD COLUMN region TEXT; CREATE INDEX run_region ON run_about (region) WHERE region IS NOT NULL;`,
	`UPDATE run_about SET region = 'here';`,
)

func versionOf(t *testing.T, path string) string {
	t.Helper()
	return query(t, tool(t, path, zombiezen.OpenReadOnly), `PRAGMA user_version`)[0][0]
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	old := open(t, path)
	rec := create(t, old, sample("a"))
	require.NoError(t, old.Close())
	s := open(t, path, withMigrations(later...))
	require.Equal(t, "3", versionOf(t, path))
	require.Equal(t, rec.WriteID, get(t, s, rec.Key).WriteID)
	require.Equal(t, [][]string{{"here"}}, query(t, tool(t, path, zombiezen.OpenReadOnly), `SELECT region FROM run_about`))
	commit(t, s, rec, stepDone(rec, 0, `{"a":1}`))
	require.Equal(t, [][]string{{"DONE"}}, query(t, tool(t, path, zombiezen.OpenReadOnly), `SELECT status FROM run_steps WHERE position = 1`), "the views are there again")
	require.NoError(t, s.Close())

	_, err := Open(t.Context(), path)
	require.ErrorIs(t, err, ErrNewerFile)
	require.ErrorContains(t, err, path)
	require.Equal(t, "3", versionOf(t, path))
}

func TestUpgradeThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	rec := create(t, open(t, path), sample("a"))
	broken := append(append([]migration{}, later...), `CREATE TABLE run_fine (a INTEGER); INSERT INTO run_missing VALUES (1);`)
	_, err := Open(t.Context(), path, withMigrations(broken...))
	require.ErrorContains(t, err, "schema version 4")
	require.ErrorContains(t, err, path)
	require.Equal(t, "1", versionOf(t, path))
	c := tool(t, path, zombiezen.OpenReadOnly)
	require.Empty(t, query(t, c, `SELECT name FROM sqlite_schema WHERE name IN ('run_fine', 'run_region')`))
	require.Len(t, query(t, c, `SELECT * FROM run_steps`), 3, "the views are still there")
	get(t, open(t, path), rec.Key)
}

// watchedTurn notes the version of the file when the turn is taken, and when it is given back.
type watchedTurn struct {
	noTurn
	version func() string
	seen    []string
}

func (w *watchedTurn) acquire(<-chan struct{}) bool {
	w.seen = append(w.seen, w.version())
	return true
}

func (w *watchedTurn) release() { w.seen = append(w.seen, w.version()) }

func TestOpenMakesAndUpgradesAFileInItsTurn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	for _, tc := range []struct {
		m    []migration
		seen []string
	}{{migrations, []string{"0", "1"}}, {migrations, nil}, {later, []string{"1", "3"}}, {later, nil}} {
		watched := &watchedTurn{version: func() string { return versionOf(t, path) }}
		c := conn{tool(t, path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)}
		o := &opening{path: path, cfg: config{migrations: tc.m}, c: c, turn: watched}
		require.NoError(t, o.prepare(t.Context()))
		require.Equal(t, tc.seen, watched.seen)
	}
}

// TestOpenOfACurrentFileWaitsForNobody: neither for the turn nor for the lock of another process.
func TestOpenOfACurrentFileWaitsForNobody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	rec := create(t, open(t, path), sample("a"))
	theirs := openTurn(path+".turn", 0)
	theirs.try()
	other := tool(t, path, zombiezen.OpenReadWrite)
	query(t, other, `BEGIN IMMEDIATE`)
	s := open(t, path, WithBusyTimeout(0))
	same(t, rec, get(t, s, rec.Key))
	_, err := s.Create(t.Context(), sample("b"))
	require.ErrorContains(t, err, "locked for longer than the busy timeout")
	query(t, other, `COMMIT`)
	theirs.release()
	theirs.close()
	create(t, s, sample("b"))
}

// TestOpenBesideABusyWriter: many times, and never in vain.
func TestOpenBesideABusyWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	busy := open(t, path)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				_, err := busy.Create(context.Background(), sample(fmt.Sprint(w, i)))
				assert.NoError(t, err)
			}
		})
	}
	for range 50 {
		s, err := Open(t.Context(), path, WithBusyTimeout(0))
		if assert.NoError(t, err) {
			assert.NoError(t, s.Close())
		}
	}
	stop.Store(true)
	wg.Wait()
}

// TestOpenPutsAFileBackIntoItsMode, which any SQL tool may have changed.
func TestOpenPutsAFileBackIntoItsMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	c := tool(t, path, zombiezen.OpenReadWrite)
	require.Equal(t, [][]string{{"delete"}}, query(t, c, `PRAGMA journal_mode = DELETE`))
	create(t, open(t, path), sample("a"))
	require.Equal(t, [][]string{{walMode}}, query(t, tool(t, path, zombiezen.OpenReadOnly), `PRAGMA journal_mode`))
}

// TestOpenTogether: many make and upgrade one file at once, and each finds it as it should be.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	for _, m := range [][]migration{migrations, later} {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				s, err := Open(t.Context(), path, withMigrations(m...))
				if err == nil {
					_, err = s.Create(t.Context(), sample(fmt.Sprint(len(m), i)))
				}
				if err == nil {
					err = s.Close()
				}
				errs[i] = err
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	require.Equal(t, [][]string{{"16"}}, query(t, tool(t, path, zombiezen.OpenReadOnly), `SELECT count(*) FROM runs`))
}

// TestFirstVersionsFile reads and goes on with a file that was written when the layout was first released.
func TestFirstVersionsFile(t *testing.T) {
	t.Parallel()
	released, err := os.ReadFile(filepath.Join("testdata", "v1.db"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "runs.db")
	require.NoError(t, os.WriteFile(path, released, 0o600))
	s := open(t, path)
	for _, want := range versionOneRecords() {
		same(t, want, get(t, s, want.Key))
	}
	rec := versionOneRecords()[0]
	commit(t, s, rec, stepDone(rec, 1, `{"next":true}`))
	same(t, rec, get(t, s, rec.Key))
}

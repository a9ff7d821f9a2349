package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

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

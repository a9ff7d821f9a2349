package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// smallDisk is a file system of that size, in memory.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("a small disk can't be mounted, which takes root: %v", err)
		}
		t.Skipf("NOT TESTED: a disk that is really full. It can't be mounted, which takes root: %v", err)
	}
	// Detached, since a process that another test is just starting holds what is open here for a moment.
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// TestADiskThatFillsUp: the log has no room for a commit, whose answer is then in doubt, until there is room again. What was
// answered is there, the file is sound, and every write that is sent again is made or recognised.
func TestADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "2m")
	path := filepath.Join(dir, "runs.db")
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 700<<10), 0o600))
	s := open(t, path)
	made := map[string]*state.Record{}
	var failed *state.Record
	for i := 0; failed == nil; i++ {
		rec := sample(fmt.Sprint(i))
		rec.Input = []byte(`"` + strings.Repeat("x", 20_000) + `"`)
		existing, err := s.Create(t.Context(), rec)
		if err == nil {
			require.Nil(t, existing)
			made[rec.Key] = rec
			continue
		}
		failed = rec
		require.ErrorContains(t, err, "full")
		require.ErrorContains(t, err, path)
		require.NotErrorIs(t, err, state.ErrTooLarge)
	}
	require.NotEmpty(t, made)
	for _, want := range made {
		same(t, want, get(t, s, want.Key))
	}
	require.NoError(t, os.Remove(ballast))
	existing, err := s.Create(t.Context(), failed)
	require.NoError(t, err)
	if existing != nil {
		require.Equal(t, failed.WriteID, existing.WriteID)
	}
	made[failed.Key] = failed
	commit(t, s, failed, stepDone(failed, 0, `1`))
	require.NoError(t, s.Close())
	again := open(t, path)
	for _, want := range made {
		same(t, want, get(t, again, want.Key))
	}
	require.Equal(t, [][]string{{"ok"}}, query(t, tool(t, path, zombiezen.OpenReadOnly), `PRAGMA integrity_check`))
}

func TestOpenOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "64k")
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 60<<10), 0o600))
	_ = refused(t, filepath.Join(dir, "runs.db"), "full")
	require.NoError(t, os.Remove(ballast))
}

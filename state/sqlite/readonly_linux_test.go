package sqlite

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"
)

// asNobody runs f with the file permissions of a user who owns nothing: to root no file is read-only.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// letIn lets everybody look into a folder of the test's.
func letIn(t *testing.T, dir string) {
	t.Helper()
	for ; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // that is the purpose
	}
}

func TestOpenRefusesAReadOnlyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	create(t, s, sample("a"))
	require.NoError(t, s.Close())
	letIn(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "private"), 0o700))
	require.NoError(t, os.Chmod(path, 0o444)) //nolint:gosec // it holds nothing
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	asNobody(t, func() { _ = refused(t, path, "read-only") })
	asNobody(t, func() { _ = refused(t, filepath.Join(dir, "private", "runs.db"), "look into its folder") })

	require.NoError(t, os.Chmod(path, 0o666)) //nolint:gosec // it holds nothing
	require.NoError(t, os.Chmod(dir, 0o555))  //nolint:gosec // the folder is what is read-only now
	asNobody(t, func() { _ = refused(t, path, "folder") })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // so that it can be removed

	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	get(t, open(t, path), sample("a").Key)
}

// TestOpenRefusesAReadOnlyFileInAnOpenFolder: it could be read, whether another process has it locked or nobody has it open.
func TestOpenRefusesAReadOnlyFileInAnOpenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	letIn(t, dir)
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // that is the test
	path := filepath.Join(dir, "runs.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	create(t, s, sample("a"))
	require.NoError(t, os.Chmod(path, 0o444)) //nolint:gosec // it holds nothing
	for _, beside := range []string{"-wal", "-shm"} {
		require.NoError(t, os.Chmod(path+beside, 0o666)) //nolint:gosec // nor do they
	}
	c, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
	require.NoError(t, err)
	query(t, c, `BEGIN IMMEDIATE`)
	asNobody(t, func() { _ = refused(t, path, "read-only") })
	query(t, c, `ROLLBACK`)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	asNobody(t, func() { _ = refused(t, path, "read-only") })
}

func TestOpenRefusesAFileInAReadOnlyFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	letIn(t, dir)
	require.NoError(t, os.Chmod(dir, 0o555)) //nolint:gosec // that is the test
	asNobody(t, func() { _ = refused(t, filepath.Join(dir, "runs.db"), "can't be opened") })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // so that it can be removed
}

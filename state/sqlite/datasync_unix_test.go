//go:build linux || freebsd || netbsd || illumos

package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

func TestOpenTurnsFdatasyncOn(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	tls := libc.NewTLS()
	defer tls.Close()
	const ask = -1
	require.EqualValues(t, 1, sqlite3.Xmodernc_fdatasync(tls, ask))
}

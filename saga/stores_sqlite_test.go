package saga_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

func init() {
	storeKinds = append(storeKinds, storeKind{name: "sqlite", open: openSQLite, place: placeSQLite, elsewhere: elsewhereSQLite})
}

// openSQLite opens one file, anew each time.
func openSQLite(t *testing.T, clk saga.Clock) func() state.Store {
	path := filepath.Join(t.TempDir(), "runs.db")
	return func() state.Store {
		s, err := sqlite.Open(t.Context(), path, sqlite.WithClock(clk))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
}

func placeSQLite(t *testing.T) string { return filepath.Join(t.TempDir(), "runs.db") }

func elsewhereSQLite(ctx context.Context, place string) (state.Store, func() error, error) {
	s, err := sqlite.Open(ctx, place)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

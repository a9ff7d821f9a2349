package outbox_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// onEveryStore runs f on an empty store of each kind.
func onEveryStore(t *testing.T, f func(t *testing.T, store state.Store)) {
	t.Run("memory", func(t *testing.T) { f(t, memory.New()) })
	t.Run("sqlite", func(t *testing.T) { f(t, openSQLite(t)) })
	t.Run("dynamodb", func(t *testing.T) { f(t, openDynamoDB(t)) })
}

func openSQLite(t testing.TB) state.Store {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func openDynamoDB(t testing.TB) state.Store {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	store, err := dynamostore.New(client, table)
	require.NoError(t, err)
	return store
}

func TestEverythingArrivesInOrderThroughDeathsAndOutages(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		t.Logf("%d copies too many", chaos(t, memory.New(), 1000, 200*time.Millisecond))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Logf("%d copies too many", chaos(t, openSQLite(t), 1000, 400*time.Millisecond))
	})
	t.Run("dynamodb", func(t *testing.T) {
		t.Logf("%d copies too many", chaos(t, openDynamoDB(t), 150, 800*time.Millisecond))
	})
}

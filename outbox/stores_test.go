package outbox_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
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

func openSQLite(t testing.TB, opts ...sqlite.Option) state.Store {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func openDynamoDB(t testing.TB, opts ...dynamostore.Option) state.Store {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	store, err := dynamostore.New(client, table, opts...)
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
		t.Logf("%d copies too many", chaos(t, openDynamoDB(t), 90, 800*time.Millisecond))
	})
}

func TestRecordOutlivesItsRetentionUntilItsMessagesAreSent(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *clock.Fake) state.Store{
		"memory":   func(_ *testing.T, clk *clock.Fake) state.Store { return memory.New(memory.WithClock(clk)) },
		"sqlite":   func(t *testing.T, clk *clock.Fake) state.Store { return openSQLite(t, sqlite.WithClock(clk)) },
		"dynamodb": func(t *testing.T, clk *clock.Fake) state.Store { return openDynamoDB(t, dynamostore.WithClock(clk)) },
	} {
		t.Run(name, func(t *testing.T) {
			clk := &clock.Fake{}
			store, b := open(t, clk), &broker{}
			key := seed(t, store, "a", plain(t, "a", 2)...) // kept for an hour
			clk.Advance(48 * time.Hour)
			assert.Len(t, unsent(t, store, key), 2)
			r := relay(t, store, b, outbox.WithClock(clk))
			require.NoError(t, r.Drain(t.Context()))
			assert.Len(t, b.got(), 2)
			clk.Advance(59 * time.Minute)
			assert.Empty(t, unsent(t, store, key), "the retention counts from the sending")
			clk.Advance(2 * time.Minute)
			_, err := store.Get(t.Context(), key)
			require.ErrorIs(t, err, state.ErrNotFound)
		})
	}
}

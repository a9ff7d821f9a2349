package sagatest_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

var full = flag.Bool("full", false, "let every fault strike on the slow stores too")

// crashAll takes the sagas of these tests through the lab, on one store: one in so many faults, unless all are wanted.
func crashAll(t *testing.T, oneIn int, open func(clk saga.Clock) state.Store) {
	t.Helper()
	if *full {
		oneIn = 1
	}
	struck := map[string]bool{}
	for name, crash := range map[string]func(...sagatest.CrashOption) sagatest.CrashReport{
		"travel": func(o ...sagatest.CrashOption) sagatest.CrashReport {
			return sagatest.Crash(t, travel, purchaseKey, somePurchase, o...)
		},
		"sold out": func(o ...sagatest.CrashOption) sagatest.CrashReport {
			return sagatest.Crash(t, soldOut, purchaseKey, somePurchase, o...)
		},
		"transfer": func(o ...sagatest.CrashOption) sagatest.CrashReport {
			return sagatest.Crash(t, transfer, purchaseKey, somePurchase, o...)
		},
		"checkout": func(o ...sagatest.CrashOption) sagatest.CrashReport {
			return sagatest.Crash(t, checkout, purchaseKey, somePurchase, o...)
		},
	} {
		report := crash(sagatest.OnStore(open), sagatest.OneIn(oneIn))
		t.Logf("%s: %d runs, %d faults struck, %d left out", name, report.Runs, report.Struck(), report.Left)
		for f := range report.Faults {
			struck[f] = true
		}
		if oneIn == 1 {
			assert.Empty(t, report.NeverReached, name)
		}
	}
	assert.Len(t, struck, 8, "each kind of fault has its turn")
}

func TestSagasSurviveOnSQLite(t *testing.T) {
	crashAll(t, 5, func(clk saga.Clock) state.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), sqlite.WithClock(clk))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		return s
	})
}

// Without a server the test is skipped aloud, and fails in CI.
func TestSagasSurviveOnDynamoDB(t *testing.T) {
	endpoint := dynamotest.Start(t, true).URL
	crashAll(t, 8, func(clk saga.Clock) state.Store {
		client := dynamotest.Client(t, endpoint)
		table := dynamotest.TableName(t)
		require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
		s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
		require.NoError(t, err)
		return s
	})
}

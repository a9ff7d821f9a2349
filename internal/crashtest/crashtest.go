// Package crashtest is test code: it puts a saga through the crash lab on every store that there is.
package crashtest

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

func oneIn(n int) sagatest.CrashOption {
	if *full {
		n = 1
	}
	return sagatest.OneIn(n)
}

// OnEachStore calls crash once for each store, in subtests; it is to call sagatest.Crash with the options that it is given.
// In memory every fault strikes, and every function of the saga has to be reached but those in unreached, such as "undo
// ship". Of the stores that take their time, SQLite meets one fault in five and DynamoDB one in twelve, unless the flag
// -full is set. Without a server for the latter its subtest is skipped aloud, and fails in CI.
func OnEachStore(t *testing.T, crash func(t *testing.T, opts ...sagatest.CrashOption) sagatest.CrashReport, unreached ...string) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		report := crash(t)
		log(t, report)
		assert.Zero(t, report.Left)
		assert.ElementsMatch(t, unreached, report.NeverReached)
	})
	t.Run("sqlite", func(t *testing.T) {
		log(t, crash(t, oneIn(5), sagatest.OnStore(func(clk saga.Clock) state.Store { return openSQLite(t, clk) })))
	})
	t.Run("dynamodb", func(t *testing.T) {
		endpoint := dynamotest.Start(t, true).URL
		log(t, crash(t, oneIn(12), sagatest.OnStore(func(clk saga.Clock) state.Store { return openDynamo(t, endpoint, clk) })))
	})
}

func log(t *testing.T, report sagatest.CrashReport) {
	t.Helper()
	t.Logf("%d runs, %d faults struck, %d left out", report.Runs, report.Struck(), report.Left)
	assert.Positive(t, report.Struck())
}

func openSQLite(t *testing.T, clk saga.Clock) state.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), sqlite.WithClock(clk))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func openDynamo(t *testing.T, endpoint string, clk saga.Clock) state.Store {
	t.Helper()
	client, table := dynamotest.Client(t, endpoint), dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
	require.NoError(t, err)
	return s
}

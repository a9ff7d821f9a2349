package saga_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The statements of the page are run on a file with something of each to be seen.
func TestTheStatementsOfTheOperationsPageWork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	ctx := saga.ActorContext(t.Context(), "ann")
	store, err := sqlite.Open(ctx, path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	emit := steps.Do("emit", func(_ context.Context, r *steps.Run[string]) error {
		r.Emit(outbox.Message{Topic: "order-created", Body: 1})
		return nil
	}).Pivot()
	second := steps.Do("second", func(_ context.Context, r *steps.Run[string]) error {
		switch r.Input {
		case "refused":
			return steps.Permanent(errors.New("refused"))
		case "lost":
			return errors.New("no answer")
		}
		return nil
	}).Retry(steps.RetryPolicy{PerRun: 1})
	orders, err := saga.New(saga.Define("create_order", saga.NoResult, emit, second), store)
	require.NoError(t, err)
	for id, in := range map[string]string{"order-001": "refused", "order-002": "lost", "order-003": "fine", "order-004": "refused"} {
		_, err := orders.Run(ctx, saga.Key{Tenant: "tenant-a", ID: id}, in)
		require.Equal(t, in == "fine", err == nil, "%v", err)
	}
	require.NoError(t, orders.Retry(ctx, saga.Key{Tenant: "tenant-a", ID: "order-001"}, "by the test"))

	conn, err := driver.OpenConn(path, driver.OpenReadOnly)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	rows := []int{3, 1, 0, 1, 1, 1} // for each statement, in the page's order; nothing is an hour old
	blocks := docBlocks(t, operationsPage, "sql")
	require.Len(t, blocks, len(rows))
	for i, statement := range blocks {
		var got []string
		err := sqlitex.ExecuteTransient(conn, statement, &sqlitex.ExecOptions{ResultFunc: func(stmt *driver.Stmt) error {
			row := ""
			for c := range stmt.ColumnCount() {
				row += stmt.ColumnText(c) + "|"
			}
			got = append(got, row)
			return nil
		}})
		require.NoError(t, err, statement)
		assert.Len(t, got, rows[i], "%s\n%v", statement, got)
	}
}

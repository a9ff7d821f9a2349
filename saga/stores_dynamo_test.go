package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

func init() {
	storeKinds = append(storeKinds, storeKind{name: "dynamodb", open: openDynamo})
}

// openDynamo makes a table behind a proxy of its own. Without a server the test is skipped aloud, and fails in CI.
func openDynamo(t *testing.T, clk saga.Clock) func() state.Store {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := dynamotest.TableName(t, client)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	return func() state.Store {
		s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
		require.NoError(t, err)
		return s
	}
}

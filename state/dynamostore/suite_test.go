package dynamostore_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// newTable makes a table for this test.
func newTable(t *testing.T, client *dynamodb.Client, opts ...dynamostore.Option) string {
	t.Helper()
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table, opts...))
	return table
}

// newStore makes a store on a new table behind the proxy.
func newStore(t *testing.T, p *dynamotest.Proxy, opts ...dynamostore.Option) *dynamostore.Store {
	t.Helper()
	client := dynamotest.Client(t, p.URL)
	store, err := dynamostore.New(client, newTable(t, client, opts...), opts...)
	require.NoError(t, err)
	return store
}

// eachServer runs the test before a server that sends the old item on a failed condition, and before one that does not.
func eachServer(t *testing.T, test func(t *testing.T, p *dynamotest.Proxy)) {
	t.Helper()
	for name, allOld := range map[string]bool{"old item sent": true, "old item read": false} {
		t.Run(name, func(t *testing.T) { test(t, dynamotest.Start(t, allOld)) })
	}
}

func TestStore(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		statetest.Run(t, func(t *testing.T) state.Store { return newStore(t, p) })
	})
}

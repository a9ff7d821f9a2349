package saga_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

func init() {
	storeKinds = append(storeKinds, storeKind{name: "dynamodb", open: openDynamo, place: placeDynamo, elsewhere: elsewhereDynamo})
}

// openDynamo makes a table behind a proxy of its own. Without a server the test is skipped aloud, and fails in CI.
func openDynamo(t *testing.T, clk saga.Clock) func() state.Store {
	client, table := dynamoTable(t, dynamotest.Start(t, true).URL)
	return func() state.Store {
		s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
		require.NoError(t, err)
		return s
	}
}

func dynamoTable(t *testing.T, endpoint string) (*dynamodb.Client, string) {
	client := dynamotest.Client(t, endpoint)
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	return client, table
}

func placeDynamo(t *testing.T) string {
	endpoint := dynamotest.Start(t, true).URL
	_, table := dynamoTable(t, endpoint)
	return endpoint + " " + table
}

func elsewhereDynamo(_ context.Context, place string) (state.Store, func() error, error) {
	endpoint, table, _ := strings.Cut(place, " ")
	s, err := dynamostore.New(dynamotest.NewClient(endpoint, http.DefaultTransport), table)
	return s, func() error { return nil }, err
}

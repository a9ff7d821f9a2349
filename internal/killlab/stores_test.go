package killlab

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

const (
	onSQLite = "sqlite"
	onDynamo = "dynamodb"
)

// placeOf makes a store that processes can share.
func placeOf(t *testing.T, kind string) (place string) {
	t.Helper()
	if kind == onSQLite {
		return filepath.Join(t.TempDir(), "runs.db")
	}
	endpoint := dynamotest.Start(t, true).URL // without a server the test is skipped aloud, and fails in CI
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.Client(t, endpoint), table))
	return endpoint + " " + table
}

// openStore opens a store in whichever process.
func openStore(ctx context.Context, kind, place string) (s state.Store, closed func() error, err error) {
	switch kind {
	case onSQLite:
		s, err := sqlite.Open(ctx, place)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	case onDynamo:
		endpoint, table, _ := strings.Cut(place, " ")
		transport := &http.Transport{MaxIdleConnsPerHost: 16}
		s, err := dynamostore.New(dynamotest.NewClient(endpoint, transport), table, dynamostore.WithShards(2))
		return s, func() error { transport.CloseIdleConnections(); return nil }, err
	}
	return nil, nil, fmt.Errorf("no store is called %q", kind)
}

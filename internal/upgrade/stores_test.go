package upgrade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// The files of a version.
const (
	portable    = "records.json" // MarshalRecord's form, by the runs' IDs
	sqliteFile  = "runs.db"
	dynamoItems = "items.json" // as the service has them
)

func openSQLite(t *testing.T, path string, clk *clock.Fake) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.WithClock(clk))
	require.NoError(t, err)
	return s
}

// newDynamo is a store on a new table. Without a server the test is skipped aloud, and fails in CI.
func newDynamo(t *testing.T, clk *clock.Fake) (s state.Store, client *dynamodb.Client, table string) {
	t.Helper()
	client, table = dynamotest.Client(t, dynamotest.Start(t, true).URL), dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
	require.NoError(t, err)
	return s, client, table
}

// storeOf makes an empty store of each kind.
var storeOf = map[string]func(t *testing.T, clk *clock.Fake) state.Store{
	"memory": func(_ *testing.T, clk *clock.Fake) state.Store { return memory.New(memory.WithClock(clk)) },
	"sqlite": func(t *testing.T, clk *clock.Fake) state.Store {
		s := openSQLite(t, filepath.Join(t.TempDir(), "runs.db"), clk)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		return s
	},
	"dynamodb": func(t *testing.T, clk *clock.Fake) state.Store {
		s, _, _ := newDynamo(t, clk)
		return s
	},
}

// loadRecords puts the portable records into a store.
func loadRecords(t *testing.T, dir string, s state.Store) {
	t.Helper()
	for id, text := range readJSON[map[string]json.RawMessage](t, filepath.Join(dir, portable)) {
		rec, err := state.UnmarshalRecord(text)
		require.NoError(t, err, id)
		existing, err := s.Create(t.Context(), rec)
		require.NoError(t, err, id)
		require.Nil(t, existing, id)
	}
}

// loadSQLite opens a copy of the file.
func loadSQLite(t *testing.T, dir string, clk *clock.Fake) state.Store {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, sqliteFile))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "runs.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	s := openSQLite(t, path, clk)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// loadDynamo puts the items into a new table.
func loadDynamo(t *testing.T, dir string, clk *clock.Fake) state.Store {
	t.Helper()
	s, client, table := newDynamo(t, clk)
	for _, it := range readJSON[[]map[string]any](t, filepath.Join(dir, dynamoItems)) {
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: attributes(t, it)})
		require.NoError(t, err)
	}
	return s
}

// dumpDynamo are all items of a table, in the service's own JSON.
func dumpDynamo(t *testing.T, client *dynamodb.Client, table string) []map[string]any {
	t.Helper()
	var out []map[string]any
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &table})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range page.Items {
			plain := map[string]any{}
			for name, v := range it {
				plain[name] = plainOf(t, v)
			}
			out = append(out, plain)
		}
	}
	place := func(it map[string]any) string {
		return it["idempotency_key"].(map[string]any)["S"].(string) + "\x00" + it["part"].(map[string]any)["S"].(string)
	}
	slices.SortFunc(out, func(a, b map[string]any) int { return strings.Compare(place(a), place(b)) })
	return out
}

// plainOf is a value in the service's own JSON: {"S": "text"}, {"N": "1"}, {"M": {...}}, {"L": [...]}.
func plainOf(t *testing.T, v types.AttributeValue) map[string]any {
	t.Helper()
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *types.AttributeValueMemberM:
		m := map[string]any{}
		for name, e := range v.Value {
			m[name] = plainOf(t, e)
		}
		return map[string]any{"M": m}
	case *types.AttributeValueMemberL:
		l := []any{}
		for _, e := range v.Value {
			l = append(l, plainOf(t, e))
		}
		return map[string]any{"L": l}
	}
	require.Fail(t, "a type of value that is not known here", "%T", v)
	return nil
}

func attributes(t *testing.T, plain map[string]any) map[string]types.AttributeValue {
	t.Helper()
	out := map[string]types.AttributeValue{}
	for name, v := range plain {
		out[name] = attribute(t, v.(map[string]any))
	}
	return out
}

func attribute(t *testing.T, plain map[string]any) types.AttributeValue {
	t.Helper()
	for kind, v := range plain {
		switch kind {
		case "S":
			return &types.AttributeValueMemberS{Value: v.(string)}
		case "N":
			return &types.AttributeValueMemberN{Value: v.(string)}
		case "BOOL":
			return &types.AttributeValueMemberBOOL{Value: v.(bool)}
		case "B":
			var b []byte
			require.NoError(t, json.Unmarshal([]byte(`"`+v.(string)+`"`), &b))
			return &types.AttributeValueMemberB{Value: b}
		case "M":
			return &types.AttributeValueMemberM{Value: attributes(t, v.(map[string]any))}
		case "L":
			l := []types.AttributeValue{}
			for _, e := range v.([]any) {
				l = append(l, attribute(t, e.(map[string]any)))
			}
			return &types.AttributeValueMemberL{Value: l}
		}
	}
	require.Fail(t, "a type of value that is not known here", "%v", plain)
	return nil
}

func readJSON[T any](t *testing.T, path string) (v T) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(data, '\n'), 0o644))
}

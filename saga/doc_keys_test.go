package saga_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// docTables are the rows of the Markdown tables of a page by the tables' heads. A cell that is all in back quotes is
// given without them.
func docTables(t *testing.T, page string) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	out := map[string][][]string{}
	head := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			head = ""
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, c := range cells {
			c = strings.TrimSuffix(strings.TrimPrefix(c, " "), " ")
			if strings.Count(c, "`") == 2 && c[0] == '`' && c[len(c)-1] == '`' {
				c = c[1 : len(c)-1]
			}
			cells[i] = c
		}
		switch {
		case head == "":
			head = strings.Join(cells, " ")
		case strings.Trim(cells[0], "-") != "" || len(cells[0]) == 0:
			out[head] = append(out[head], cells)
		}
	}
	return out
}

const keysPage = "../docs/derived-keys.md"

func TestTheDocumentedRunKeysAreRight(t *testing.T) {
	rows := docTables(t, keysPage)["tenant operation ID run key"]
	require.Len(t, rows, 8)
	for _, row := range rows {
		var part [3]string
		for i := range part {
			var err error
			part[i], err = strconv.Unquote(row[i])
			require.NoError(t, err, "%v", row)
		}
		key := state.Key{Tenant: part[0], Operation: part[1], ID: part[2]}
		enc, err := key.Encode()
		require.NoError(t, err)
		assert.Equal(t, row[3], enc)
		back, err := state.ParseKey(row[3])
		require.NoError(t, err)
		assert.Equal(t, key, back)
	}
}

// The keys are those that a run really hands to its steps, not those that a function of ours would.
func TestTheDocumentedKeysOfCallsAreRight(t *testing.T) {
	rows := docTables(t, keysPage)["call part key"]
	require.Len(t, rows, 7)
	seen := map[string]string{}
	look := func(call string, r *steps.Run[int]) {
		for _, row := range rows {
			if row[0] == call {
				k := r.DerivedKey()
				if row[1] != "" {
					k = r.Sub(row[1])
				}
				seen[call+" "+row[1]] = k.String()
			}
		}
	}
	charge := steps.Do("charge_card", func(_ context.Context, r *steps.Run[int]) error {
		look("step", r)
		return nil
	}).Compensate(func(_ context.Context, r *steps.Run[int], did steps.Outcome[steps.None]) error {
		look("compensation", r)
		assert.Equal(t, seen["step "], did.Key.String())
		return nil
	})
	o, err := saga.New(saga.Define("create_order", saga.NoResult, charge), memory.New())
	require.NoError(t, err)
	key := saga.Key{Tenant: "tenant-a", ID: "order-001"}
	_, err = o.Run(t.Context(), key, 1)
	require.NoError(t, err)
	require.NoError(t, o.Reverse(t.Context(), key, "to see the keys of the way back"))

	require.Len(t, seen, len(rows))
	distinct := map[string]bool{}
	for _, row := range rows {
		assert.Equal(t, row[2], seen[row[0]+" "+row[1]], "%v", row)
		distinct[row[2]] = true
	}
	assert.Len(t, distinct, len(rows))
}

func TestTheDocumentedShortFormsAreRight(t *testing.T) {
	rows := docTables(t, keysPage)["key Hashed(16) Hashed(32) Hashed(52) UUID()"]
	require.Len(t, rows, 4)
	for _, row := range rows {
		k := steps.DerivedKey(row[0])
		for i, got := range []string{k.Hashed(16), k.Hashed(32), k.Hashed(52), k.UUID()} {
			assert.Equal(t, row[i+1], got)
		}
		assert.Equal(t, []string{row[1], row[3]}, []string{k.Hashed(1), k.Hashed(100)}, "clamped")
	}
}

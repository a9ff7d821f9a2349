package dynamostore_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// writtenPaths are the attributes that an update sets or removes, "steps.2" for one within a map.
func writtenPaths(in *dynamodb.UpdateItemInput) []string {
	placeholder := regexp.MustCompile(`#\w+`)
	found := map[string]bool{}
	for _, path := range regexp.MustCompile(`#\w+(?:\.#\w+)*`).FindAllString(*in.UpdateExpression, -1) {
		found[placeholder.ReplaceAllStringFunc(path, func(p string) string { return in.ExpressionAttributeNames[p] })] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// A step's write names what the step has changed and what fences it, and nothing else: neither the input nor the plan nor
// another step.
func TestACommitWritesOnlyWhatHasChanged(t *testing.T) {
	p := dynamotest.Start(t, true)
	client := dynamotest.Client(t, p.URL)
	seen := &capture{Client: client}
	s, err := dynamostore.New(seen, newTable(t, client))
	require.NoError(t, err)
	r := newCostlyRun(5, 100, 60)
	r.create(t, s)
	for i := range r.Plan {
		r.commit(t, s, r.step(i))
		want := []string{
			"current_step", "ends_as", "expiration", "failure", "in_progress_expiration", "not_before", "owner", "revision", "run", "status",
			"steps." + strconv.Itoa(i), "updated_at", "write_id",
		}
		if i+1 == len(r.Plan) {
			want = append(want, "open_shard", "response_data")
		}
		assert.ElementsMatch(t, want, writtenPaths(seen.update), "step %d", i)
	}
	r.stored(t, s)
}

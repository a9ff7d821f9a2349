package dynamostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

func TestTheNumberOfShardsChangesOnALiveTable(t *testing.T) {
	p := dynamotest.Start(t, true)
	few := newStore(t, p, dynamostore.WithShards(2))
	many := another(t, p, few, dynamostore.WithShards(16))
	manyOld := another(t, p, few, dynamostore.WithShards(2), dynamostore.WithOldShards(16))
	create := func(s *dynamostore.Store, name string) {
		for i := range 40 {
			r := newCostlyRun(1, 100, 60)
			r.Key = fmt.Sprintf("t#o#%s-%d", name, i)
			r.create(t, s)
		}
	}
	list := func(s *dynamostore.Store, limit int) map[string]bool {
		found := map[string]bool{}
		q := state.Query{Limit: limit}
		for {
			page, err := s.List(t.Context(), q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Records), limit)
			for _, r := range page.Records {
				assert.False(t, found[r.Key], "listed twice")
				found[r.Key] = true
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return found
			}
		}
	}
	create(few, "before")
	create(many, "after")
	assert.Len(t, list(many, 7), 80, "grown: everything is found")
	create(manyOld, "shrunk")
	assert.Len(t, list(manyOld, 100), 120, "shrunk, with the old number told: everything is found")
	assert.Less(t, len(list(few, 100)), 120, "shrunk without: not what is in the partitions beyond")
}

func TestRunsAreSpreadOverTheShards(t *testing.T) {
	s, err := dynamostore.New(dynamotest.NewClient("http://127.0.0.1:1", nil), "table")
	require.NoError(t, err)
	count := map[int64]int{}
	for i := range 8000 {
		count[dynamostore.ShardOf(s, fmt.Sprintf("tenant#create_order#order-%05d", i))]++
	}
	assert.Len(t, count, dynamostore.DefaultShards)
	for shard, n := range count {
		assert.InDelta(t, 1000, n, 200, "shard %d", shard)
	}
}

// One run that has something to send, among many that don't, is found by a relay that may take one message at a time.
func TestClaimFindsTheOneAmongMany(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p, dynamostore.WithShards(2))
	for i := range 250 {
		r := newCostlyRun(1, 100, 60)
		r.Key = fmt.Sprintf("t#o#%d", i)
		r.create(t, s)
	}
	claimed := map[string]int{}
	for i := range 3 {
		r := newCostlyRun(2, 100, 60)
		r.Key = fmt.Sprintf("t#o#sends-%d", i)
		r.create(t, s)
		ch := to(r.Record, state.StatusInProgress)
		ch.Messages = []outbox.Message{{ID: r.Key + "/s/0", Topic: "t", Body: []byte("b"), Time: r.CreatedAt}}
		commit(t, s, r.Record, ch)
	}
	for {
		batches, err := s.Claim(t.Context(), 1, time.Minute)
		require.NoError(t, err)
		if len(batches) == 0 {
			break
		}
		require.Len(t, batches, 1)
		claimed[batches[0].RunKey]++
	}
	assert.Equal(t, map[string]int{"t#o#sends-0": 1, "t#o#sends-1": 1, "t#o#sends-2": 1}, claimed)
}

func TestCursorsOfOthersAreRefused(t *testing.T) {
	s := newStore(t, dynamotest.Start(t, true))
	for _, c := range []string{"x", "1", "1|", "-1||", "1|2|", "1||key", "1|x|key"} {
		_, err := s.List(t.Context(), state.Query{Cursor: c})
		require.ErrorContains(t, err, "not a cursor", c)
		_, _, err = s.Parked(t.Context(), c)
		require.ErrorContains(t, err, "not a cursor", c)
	}
}

package dynamostore_test

import (
	"bytes"
	"context"
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

// slowClaims makes n runs with a message each, on a table where the claim of one takes as long as it is told.
func slowClaims(t *testing.T, n int, each time.Duration) (s *dynamostore.Store, opts []outbox.Option) {
	t.Helper()
	p := dynamotest.Start(t, true)
	s, clk := fakeStore(t, p)
	for i := range n {
		r := newCostlyRun(2, 100, 60)
		r.Key = fmt.Sprintf("t#o#%d", i)
		r.create(t, s)
		ch := to(r.Record, state.StatusInProgress)
		ch.Messages = []outbox.Message{{ID: r.Key + "/s/0", Topic: "t", Body: []byte("b"), Time: r.CreatedAt}}
		commit(t, s, r.Record, ch)
	}
	p.Break(func(r dynamotest.Request) *dynamotest.Fault {
		if r.Operation == "UpdateItem" && bytes.Contains(r.Body, []byte("attribute_exists(#ob)")) {
			clk.Advance(each)
		}
		return nil
	})
	return s, []outbox.Option{outbox.WithClock(clk)}
}

// A claim that takes its whole lease would be of no use: what it brings may not be sent any more.
func TestClaimLeavesTimeToSend(t *testing.T) {
	s, _ := slowClaims(t, 12, 100*time.Millisecond)
	seen := map[string]bool{}
	for _, want := range []int{5, 5, 2} {
		batches, err := s.Claim(t.Context(), 100, time.Second)
		require.NoError(t, err)
		require.Len(t, batches, want)
		for _, b := range batches {
			seen[b.RunKey] = true
			require.NoError(t, s.Sent(t.Context(), b, all(b)))
		}
	}
	assert.Len(t, seen, 12, "the next claim goes on where the last one has stopped")
}

func TestAClaimThatIsSlowerThanItsLeaseTakesOne(t *testing.T) {
	s, _ := slowClaims(t, 3, 2*time.Second)
	batches, err := s.Claim(t.Context(), 100, time.Second)
	require.NoError(t, err)
	require.Len(t, batches, 1)
}

// The lab that kills processes found it: relays claimed a backlog again and again, and sent nothing of it.
func TestARelayWithABacklogOnASlowTableGetsSomewhere(t *testing.T) {
	s, opts := slowClaims(t, 20, 100*time.Millisecond)
	sent := map[string]int{}
	relay, err := outbox.NewRelay(s, outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		var res []outbox.Result
		for _, m := range msgs {
			sent[m.ID]++
			res = append(res, outbox.Result{ID: m.ID})
		}
		return res, nil
	}), append(opts, outbox.WithLease(time.Second), outbox.WithWorkers(1))...)
	require.NoError(t, err)
	require.NoError(t, relay.Drain(t.Context()))
	assert.Len(t, sent, 20)
}

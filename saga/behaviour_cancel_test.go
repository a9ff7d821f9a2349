package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// renewed lets the clock run until a heartbeat has been recorded after from.
func renewed(t *testing.T, clk *clock.Fake, get func() *state.Record, from *state.Record) {
	t.Helper()
	require.Eventually(t, func() bool {
		clk.Advance(time.Second)
		return get().Revision > from.Revision
	}, 10*time.Second, 2*time.Millisecond)
}

// A request that a heartbeat has noticed is obeyed by the very next write, also when that would complete the run.
func TestACancelNoticedByAHeartbeatDuringTheLastStepIsObeyed(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		store := open()
		get := func() *state.Record { return recordOf(t, store, theKey, "chain") }
		var o *saga.Orchestrator[order, []string]
		d := chain{p: p, after: at("s2", func(ctx context.Context, r *orderRun) error {
			require.NoError(t, o.Cancel(ctx, theKey, "changed my mind"))
			renewed(t, clk, get, get())
			return nil
		})}.of(2)
		o = newSaga(t, d, store, saga.WithClock(clk))

		_, err := o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeCancelled, sagaError(t, err, saga.ErrFailed).Code)
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s1 known"}, p.seen())
		require.Equal(t, state.StatusFailed, get().Status)
	})
}

// The mark of an at-most-once step is refused by a request that came just before it: the call is not made, and nothing
// is there to be undone.
func TestACancelBeforeTheMarkOfAnAtMostOnceStepLeavesItUnstarted(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		store := open()
		var o *saga.Orchestrator[order, []string]
		d := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
			if i == 1 {
				*s = *steps.New("s2", func(_ context.Context, r *orderRun) (voucher, error) { return p.do("s2", r.IdempotencyKey()), nil }).
					AtMostOnce().When(func(*orderRun) bool { return true })
			}
		}}.of(2)
		cancelling := &hookedStore{Store: store, afterCommit: func(ch *state.Change) {
			if len(ch.Steps) == 1 && ch.Steps[0].Status == state.StepDone {
				require.NoError(t, store.RequestCancel(t.Context(), ch.Key, state.CancelRequest{Reason: "late", At: clk.Now()}))
			}
		}}
		o = newSaga(t, d, cancelling, saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.Empty(t, sagaError(t, err, saga.ErrFailed).NotUndone)
		require.Equal(t, []string{"s1", "undo s1 known"}, p.seen())
		require.Equal(t, "COMPENSATED PENDING", stepStatuses(recordOf(t, store, theKey, "chain")))
	})
}

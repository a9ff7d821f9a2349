package sagalambda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// invocation is a context with the deadline of a function's timeout.
func invocation(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func TestTheLeaseIsNoLongerThanTheTimeThatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, most, least time.Duration
	}{
		"a short timeout": {6 * time.Second, 6500 * time.Millisecond, 5 * time.Second},
		"a long one":      {15 * time.Minute, saga.DefaultLease, saga.DefaultLease},
	} {
		t.Run(name, func(t *testing.T) {
			var lease time.Duration
			store, shop := memory.New(), &shop{}
			shop.charge = func(ctx context.Context, r *orderRun) error {
				rec, err := store.Get(ctx, r.Key().String())
				if err != nil {
					return err
				}
				lease = rec.LeaseUntil.Sub(rec.UpdatedAt)
				return nil
			}
			resp, err := sagalambda.SQS(shop.on(t, store), byNo)(invocation(t, tc.timeout), queue(message(t, "m1", "", "o-1")))
			assert.Empty(t, returned(t, resp, err))
			assert.LessOrEqual(t, lease, tc.most)
			assert.GreaterOrEqual(t, lease, tc.least)
		})
	}
}

func TestTheLeaseIsRenewedWhileAStepRuns(t *testing.T) {
	store, shop := memory.New(), &shop{}
	shop.charge = func(ctx context.Context, r *orderRun) error {
		first, err := store.Get(ctx, r.Key().String())
		for err == nil {
			rec, again := store.Get(ctx, r.Key().String())
			if again == nil && rec.LeaseUntil.After(first.LeaseUntil) {
				return nil
			}
			err = errors.Join(again, clock.System().Sleep(ctx, time.Millisecond))
		}
		return err
	}
	resp, err := sagalambda.SQS(shop.on(t, store, saga.WithLease(300*time.Millisecond)), byNo)(invocation(t, time.Minute), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Len(t, shop.charged, 1)
}

func TestRunsEndBeforeTheTimeout(t *testing.T) {
	for timeout, reserve := range map[time.Duration]time.Duration{10 * time.Second: 200 * time.Millisecond, time.Second: 100 * time.Millisecond} {
		ctx := invocation(t, timeout)
		end, ok := ctx.Deadline()
		require.True(t, ok)
		ran := false
		_, err := sagalambda.Runner(fake(func(ctx context.Context, _ saga.Key, _ order) (string, error) {
			ran = true
			within, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.InDelta(t, reserve, end.Sub(within), float64(60*time.Millisecond))
			return "", nil
		})).Run(ctx, saga.Key{ID: "1"}, order{})
		require.NoError(t, err)
		assert.True(t, ran)
	}
}

func TestNothingStartsThatCanGetNowhere(t *testing.T) {
	store, shop := newStore(), &shop{}
	handle := sagalambda.SQS(shop.on(t, store), byNo)
	resp, err := handle(invocation(t, 400*time.Millisecond), queue(message(t, "m1", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	_, err = store.Get(t.Context(), saga.Key{Operation: "checkout", ID: "o-1"}.String())
	require.ErrorIs(t, err, state.ErrNotFound, "not even a record")
	_, err = sagalambda.Runner(shop.on(t, store)).Run(invocation(t, 400*time.Millisecond), saga.Key{ID: "o-1"}, order{})
	require.ErrorIs(t, err, saga.ErrInterrupted)
	resp, err = sagalambda.SQS(shop.on(t, store, saga.WithMargin(10*time.Millisecond)), byNo, sagalambda.WithMargin(10*time.Millisecond))(invocation(t, 400*time.Millisecond), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err), "with a smaller margin there is time")
}

func TestWhatTheTimeoutInterruptsGoesOnWithTheNextDelivery(t *testing.T) {
	store, shop, slow := newStore(), &shop{}, true
	shop.charge = func(ctx context.Context, _ *orderRun) error {
		if !slow {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	handle := sagalambda.SQS(shop.on(t, store), byNo)
	ctx := invocation(t, 1500*time.Millisecond)
	resp, err := handle(ctx, queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-1")))
	assert.Equal(t, []string{"m1", "m2"}, returned(t, resp, err))
	require.NoError(t, ctx.Err(), "it has answered before the timeout")
	rec := recordOf(t, store)
	assert.Equal(t, state.StatusInterrupted, rec.Status)
	assert.True(t, rec.Done("reserve"))
	slow = false
	resp, err = handle(invocation(t, time.Minute), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Equal(t, []string{"o-1"}, shop.reserved, "a step that is recorded never starts again")
	assert.Equal(t, []string{"o-1"}, shop.charged)
}

func TestARunThatIsAtWorkElsewhereIsReturned(t *testing.T) {
	store, shop := newStore(), &shop{}
	var second []string
	var handle func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)
	shop.charge = func(ctx context.Context, _ *orderRun) error { // another environment gets the same message meanwhile
		resp, err := handle(ctx, queue(message(t, "m1", "", "o-1")))
		second = returned(t, resp, err)
		return nil
	}
	handle = sagalambda.SQS(shop.on(t, store), byNo)
	resp, err := handle(invocation(t, time.Minute), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Equal(t, []string{"m1"}, second)
	assert.Len(t, shop.charged, 1)
}

func TestABlockedRunIsAcknowledgedAfterTheListenerWasTold(t *testing.T) {
	var told []string
	shop := &shop{charge: func(context.Context, *orderRun) error { return permanent(errDeclined) }, release: func() error { return permanent(errors.New("gone")) }}
	log := &logged{}
	o := shop.on(t, newStore(), saga.WithListener(saga.Listener{RunBlocked: func(_ context.Context, e saga.RunEvent) { told = append(told, e.Key.ID) }}))
	resp, err := sagalambda.SQS(o, byNo, sagalambda.WithLogger(log.logger()))(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Equal(t, []string{"o-1"}, told)
	assert.Contains(t, log.text(), `"msg":"record_blocked","record":"m1","key":"#checkout#o-1"`)
	resp, err = sagalambda.SQS(o, byNo, sagalambda.WithBlocked(sagalambda.Return))(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
}

func TestARunnerChecksItsArguments(t *testing.T) {
	_, err := sagalambda.Runner[order, string](nil).Run(t.Context(), saga.Key{ID: "1"}, order{})
	require.ErrorContains(t, err, "the runner is nil")
}

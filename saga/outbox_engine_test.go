package saga_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// outage is a broker that takes nothing while it is down.
type outage struct {
	published
	down atomic.Bool
}

func (b *outage) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	if b.down.Load() {
		return nil, errors.New("down")
	}
	return b.published.Publish(ctx, msgs)
}

// A completed run with unsent messages is there for as long as it takes to send them, and then for its retention.
func TestARunWithUnsentMessagesDoesNotExpire(t *testing.T) {
	const retention = time.Hour
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store, broker := open(), &outage{}
		broker.down.Store(true)
		relay, err := outbox.NewRelay(store, broker, outbox.WithClock(clk))
		require.NoError(t, err)
		var effects atomic.Int64
		d := saga.Define("emits", func(context.Context, *orderRun) (int64, error) { return effects.Load(), nil },
			steps.Do("notify", func(_ context.Context, r *orderRun) error {
				effects.Add(1)
				r.Emit(outbox.Message{Topic: "t", Body: 1})
				return nil
			})).Retention(retention)
		o := newSaga(t, d, store, saga.WithClock(clk), saga.WithRelay(relay))
		got, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err, "an outage fails no run")
		require.EqualValues(t, 1, got)

		for range 2 { // two retentions later, and four
			clk.Advance(2 * retention)
			rec, err := o.Get(t.Context(), theKey)
			require.NoError(t, err)
			require.Equal(t, state.StatusCompleted, rec.Status)
			require.Len(t, rec.Outbox.Messages, 1)
			require.True(t, rec.ExpiresAt.IsZero())
			got, err = o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.EqualValues(t, 1, got, "the stored result")
		}

		broker.down.Store(false)
		clk.Advance(relay.Lease())
		sentAt := clk.Now()
		require.NoError(t, relay.Drain(t.Context()))
		require.Equal(t, []string{"t#emits#1/notify/0"}, broker.ids())
		rec, err := o.Get(t.Context(), theKey)
		require.NoError(t, err)
		require.Empty(t, rec.Outbox.Messages)
		require.False(t, rec.ExpiresAt.Before(sentAt.Add(retention)), "the retention counts from the sending")

		clk.Set(rec.ExpiresAt.Add(-time.Second))
		_, err = o.Get(t.Context(), theKey)
		require.NoError(t, err)
		clk.Set(rec.ExpiresAt.Add(time.Second))
		_, err = o.Get(t.Context(), theKey)
		require.ErrorIs(t, err, saga.ErrNotFound)
		got, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.EqualValues(t, 2, got, "a key that was forgotten is a new one")
	})
}

// What an attempt emitted is gone with it when it fails or is interrupted, in steps and in compensations; the attempt that
// is recorded leaves its own messages, numbered from 0.
func TestTheMessagesOfAFailedAttemptVanishWithIt(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		perRun int // attempts in one run: 3 retries inside of it, and 1 interrupts it each time
		runs   int // that it takes
	}{"retried": {3, 1}, "interrupted": {1, 5}} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				store, broker := open(), &published{}
				relay, err := outbox.NewRelay(store, broker, outbox.WithClock(clk))
				require.NoError(t, err)
				attempts := map[string]int{}
				emitting := func(_ context.Context, r *orderRun) error {
					attempts[r.IdempotencyKey()]++
					n := attempts[r.IdempotencyKey()]
					for range 4 - n { // the more the earlier
						r.Emit(outbox.Message{Topic: "t", Body: n})
					}
					if n < 3 {
						return busy
					}
					return nil
				}
				retry := steps.RetryPolicy{PerRun: c.perRun}
				p := new(participant)
				d := chain{
					p: p, after: at("s1", emitting), afterUndo: at("s1", emitting),
					declare: func(_ int, s *steps.Step[order, voucher]) { s.Retry(retry).CompensateRetry(retry) },
					also:    []steps.Declared[order]{refusing("last")},
				}.of(1)
				o := newSaga(t, d, store, saga.WithClock(clk), saga.WithRelay(relay))
				for range c.runs - 1 {
					_, err = o.Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, saga.ErrInterrupted)
					lapse(clk)
				}
				_, err = o.Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, err, saga.ErrFailed)
				require.Equal(t, map[string]int{"t#chain#1/s1": 3, "t#chain#1/s1/compensate": 3}, attempts)
				require.NoError(t, relay.Drain(t.Context()))
				require.Equal(t, []string{"t#chain#1/s1/0", "t#chain#1/s1/compensate/0"}, broker.ids())
				for _, m := range broker.msgs {
					require.Equal(t, "3", string(m.Bytes()), "of the last attempt")
				}
			})
		})
	}
}

// refusing is a step that emits, and fails for good: its messages vanish too.
func refusing(name string) steps.Declared[order] {
	return steps.Do(name, func(_ context.Context, r *orderRun) error {
		r.Emit(outbox.Message{Topic: "t", Body: "never"})
		return steps.Permanent(errRefuse)
	})
}

// While no attempt is recorded, nothing of it is in the record.
func TestAnInterruptedStepLeavesNoMessages(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store := open()
		d := chain{p: new(participant), after: func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "t", Body: 1})
			return errors.New("busy")
		}}.of(1)
		_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrInterrupted)
		require.Empty(t, recordOf(t, store, theKey, "chain").Outbox.Messages)
		claimed, err := store.Claim(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Empty(t, claimed)
	})
}

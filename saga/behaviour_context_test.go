package saga_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// errGone is why these callers go.
var errGone = errors.New("the client hung up")

// The caller goes while a step is being undone: that undo is finished and recorded, the next one is not started, the run
// rests as COMPENSATING, and the next call goes on backwards.
func TestTheCallerGoesDuringAnUndo(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithCancelCause(t.Context())
		c := failsAt(p, 4)
		c.beforeUndo = at("s2", func(ctx context.Context, _ *orderRun) error {
			cancel(errGone)
			return ctx.Err() // nil: the undo has not ended with the caller
		})
		o := newSaga(t, c.of(five), open(), saga.WithClock(clk))
		_, err := o.Run(ctx, theKey, theOrder)
		require.Equal(t, "s1", sagaError(t, err, saga.ErrInterrupted).Step)
		require.ErrorIs(t, err, errGone)
		require.Equal(t, []string{"s1", "s2", "s3", "undo s3 known", "undo s2 known"}, p.seen())
		rec := recordOf(t, open(), theKey, "chain")
		require.Equal(t, state.StatusCompensating, rec.Status)
		require.Equal(t, "DONE COMPENSATED COMPENSATED PENDING PENDING", stepStatuses(rec))
		require.Empty(t, rec.Owner, "the lease is released")

		_, err = o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "s4", sagaError(t, err, saga.ErrFailed).Step)
		require.Equal(t, []string{"s1", "s2", "s3", "undo s3 known", "undo s2 known", "undo s1 known"}, p.seen())
	})
}

// A run that goes backwards at the very moment when the caller goes keeps its direction, and undoes nothing yet.
func TestTheCallerGoesBeforeTheFirstUndo(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithCancelCause(t.Context())
		c := chain{p: p, before: at("s3", func(context.Context, *orderRun) error {
			cancel(errGone)
			return steps.Permanent(errRefuse)
		})}
		o := newSaga(t, c.of(five), open(), saga.WithClock(clk))
		_, err := o.Run(ctx, theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.Equal(t, state.StatusCompensating, recordOf(t, open(), theKey, "chain").Status)
		require.Equal(t, []string{"s1", "s2"}, p.seen())

		got, err := saga.Recover(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Failed: 1}, got)
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s1 known"}, p.seen())
	})
}

// A compensation that fails for now is not tried again for a caller who has gone.
func TestTheCallerGoesDuringAnUndoThatFails(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithCancelCause(t.Context())
		undos := 0
		c := failsAt(p, 3)
		c.beforeUndo = at("s2", func(context.Context, *orderRun) error {
			if undos++; undos == 1 {
				cancel(errGone)
				return errors.New("busy")
			}
			return nil
		})
		c.declare = func(_ int, s *steps.Step[order, voucher]) { s.CompensateRetry(steps.RetryPolicy{PerRun: 3}) }
		o := newSaga(t, c.of(three), open(), saga.WithClock(clk))
		_, err := o.Run(ctx, theKey, theOrder)
		require.Equal(t, "s2", sagaError(t, err, saga.ErrInterrupted).Step)
		require.ErrorContains(t, err, "busy")
		require.Equal(t, 1, undos)
		rec := recordOf(t, open(), theKey, "chain")
		require.Equal(t, state.StatusCompensating, rec.Status)
		require.Equal(t, 1, rec.Steps[1].UndoAttempts)

		_, err = o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s1 known"}, p.seen())
	})
}

// The caller goes during a forward step: its context ends, the run is interrupted with the step unknown, and the same
// key goes on there.
func TestTheCallerGoesDuringAForwardStep(t *testing.T) {
	for name, tc := range map[string]struct {
		answer        func(ctx context.Context) error // of the function, once its context has ended
		next          string                          // step at which the same key goes on
		attempts      int                             // of s2, as recorded
		unknown       bool
		callsOfSecond []string
	}{
		"and it gives up": {
			answer: func(ctx context.Context) error { return ctx.Err() }, next: "s2", attempts: 1, unknown: true,
			callsOfSecond: []string{"s2", "s3"},
		},
		"and it comes to an end all the same": {
			answer: func(context.Context) error { return nil }, next: "s3", attempts: 1,
			callsOfSecond: []string{"s3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				ctx, cancel := context.WithCancelCause(t.Context())
				c := chain{p: p, after: at("s2", func(ctx context.Context, _ *orderRun) error {
					cancel(errGone)
					<-ctx.Done()
					return tc.answer(ctx)
				})}
				_, err := newSaga(t, c.of(three), open(), saga.WithClock(clk)).Run(ctx, theKey, theOrder)
				e := sagaError(t, err, saga.ErrInterrupted)
				require.Equal(t, tc.next, e.Step)
				require.Zero(t, e.RetryAfter, "at once")
				require.ErrorIs(t, err, errGone)
				rec := recordOf(t, open(), theKey, "chain")
				require.Equal(t, state.StatusInterrupted, rec.Status)
				require.Equal(t, tc.next, rec.CurrentStep)
				require.Equal(t, tc.attempts, rec.Steps[1].Attempts)
				require.Equal(t, tc.unknown, rec.Steps[1].Unknown)
				require.Zero(t, rec.LeaseUntil, "the lease is released")
				require.True(t, rec.PartialSuccess())

				before := p.seen()
				got, err := newSaga(t, chain{p: p}.of(three), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, got)
				require.Equal(t, append(before, tc.callsOfSecond...), p.seen())
			})
		})
	}
}

// The caller goes between two steps, or while a step waits to be tried again: nothing more is called.
func TestTheCallerGoesBetweenTwoCalls(t *testing.T) {
	for name, listen := range map[string]func(cancel func()) saga.Listener{
		"two steps": func(cancel func()) saga.Listener {
			return saga.Listener{StepDone: func(_ context.Context, ev saga.StepEvent) {
				if ev.Step == "s1" {
					cancel()
				}
			}}
		},
		"two attempts": func(cancel func()) saga.Listener {
			return saga.Listener{StepRetried: func(context.Context, saga.StepEvent) { cancel() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				ctx, cancel := context.WithCancelCause(t.Context())
				c := chain{p: p, before: attempts(transient), declare: retryOften}
				o := newSaga(t, c.of(three), open(), saga.WithClock(clk), saga.WithListener(listen(func() { cancel(errGone) })))
				_, err := o.Run(ctx, theKey, theOrder)
				require.Equal(t, "s2", sagaError(t, err, saga.ErrInterrupted).Step)
				require.Equal(t, []string{"s1"}, p.seen())
				rec := recordOf(t, open(), theKey, "chain")
				require.Equal(t, state.StatusInterrupted, rec.Status)
				require.Equal(t, name == "two attempts", rec.Steps[1].Unknown)
				got, err := newSaga(t, chain{p: p}.of(three), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, got)
			})
		})
	}
}

// A caller who is gone before anything began leaves nothing behind.
func TestTheCallerIsGoneAlready(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		o := newSaga(t, chain{p: p}.of(three), open(), saga.WithClock(clk))
		_, err := o.Run(ctx, theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.ErrorIs(t, err, errGone)
		require.Empty(t, p.all())
		_, err = o.Get(t.Context(), theKey)
		require.ErrorIs(t, err, saga.ErrNotFound)
	})
}

// No call is started that the caller's time can't fit, the margin kept free; what was done is recorded, and the closing
// write is made although the caller's time is nearly over.
func TestNoStepStartsThatTheCallersTimeCannotFit(t *testing.T) {
	for name, tc := range map[string]struct {
		left    time.Duration // of the caller's time
		timeout time.Duration // of s2
		want    []string
		why     string
	}{
		"less than the margin is left": {300 * time.Millisecond, 0, nil, "no call starts in its last 600ms"},
		"less than the timeout of s2":  {time.Minute, time.Hour, []string{"s1"}, "its Timeout is 1h0m0s"},
		"enough for both":              {time.Hour + time.Minute, time.Hour, []string{"s1", "s2", "s3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				p := new(participant)
				c := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
					if i == 1 && tc.timeout > 0 {
						s.Timeout(tc.timeout)
					}
				}}
				ctx, cancel := context.WithTimeout(t.Context(), tc.left)
				defer cancel()
				_, err := newSaga(t, c.of(three), open()).Run(ctx, theKey, theOrder)
				rec := recordOf(t, open(), theKey, "chain")
				require.ElementsMatch(t, tc.want, p.seen())
				if len(tc.want) == 3 {
					require.NoError(t, err)
					return
				}
				sagaError(t, err, saga.ErrInterrupted)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, tc.why)
				require.Equal(t, state.StatusInterrupted, rec.Status)
				require.Equal(t, len(tc.want), rec.Next())
				require.False(t, rec.Steps[rec.Next()].Unknown, "it was never started")
				require.Zero(t, rec.Steps[rec.Next()].Attempts)
			})
		})
	}
}

// An obedient step is told early enough that its end can still be recorded.
func TestTheCallersTimeRunsOutDuringAStep(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var told atomic.Int64
		c := chain{p: p, after: at("s2", func(ctx context.Context, _ *orderRun) error {
			<-ctx.Done()
			told.Store(time.Now().UnixNano())
			return ctx.Err()
		})}
		_, err := newSaga(t, c.of(three), open()).Run(ctx, theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.NoError(t, ctx.Err(), "the caller gets its answer in time")
		deadline, _ := ctx.Deadline()
		require.Greater(t, deadline.Sub(time.Unix(0, told.Load())), saga.DefaultMargin)
		rec := recordOf(t, open(), theKey, "chain")
		require.Equal(t, state.StatusInterrupted, rec.Status)
		require.True(t, rec.Steps[1].Unknown)
	})
}

// A wait that would pass the caller's deadline is not slept.
func TestAWaitBeyondTheCallersTimeIsNotSlept(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		p := new(participant)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := chain{p: p, before: attempts(transient)}
		c.declare = func(_ int, s *steps.Step[order, voucher]) {
			s.Retry(steps.RetryPolicy{Initial: 25 * time.Second, Max: 25 * time.Second, Jitter: -1, PerRun: 3})
		}
		began := time.Now()
		o := newSaga(t, c.of(three), open())
		_, err := o.Run(ctx, theKey, theOrder)
		require.Equal(t, 25*time.Second, sagaError(t, err, saga.ErrInterrupted).RetryAfter)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Zero(t, recordOf(t, open(), theKey, "chain").NotBefore, "only RetryAfter sets it")

		_, err = o.Run(ctx, theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.Equal(t, 2, recordOf(t, open(), theKey, "chain").Steps[1].Attempts, "so the same key is tried at once")
	})
}

// RetryAfter holds for everyone, until it has passed.
func TestRetryAfterHoldsForEveryone(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		later := steps.WithCode("rate_limited", steps.RetryAfter(time.Hour, errors.New("too many requests")))
		c := chain{p: p, before: attempts(failing(later), func(context.Context, *orderRun) error { return nil }), declare: retryOften}
		o := newSaga(t, c.of(three), open(), saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		e := sagaError(t, err, saga.ErrInterrupted)
		require.Equal(t, time.Hour, e.RetryAfter, "longer than a lease, so it is not slept")
		require.Equal(t, "rate_limited", e.Code)

		other := newSaga(t, c.of(three), open(), saga.WithClock(clk))
		clk.Advance(30 * time.Minute)
		_, err = other.Run(t.Context(), theKey, theOrder)
		require.Equal(t, 30*time.Minute, sagaError(t, err, saga.ErrInterrupted).RetryAfter)
		got, err := saga.Recover(t.Context(), other)
		require.NoError(t, err)
		require.Zero(t, got)
		require.Equal(t, []string{"s1"}, p.seen())

		clk.Advance(30 * time.Minute)
		got, err = saga.Recover(t.Context(), other)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Completed: 1}, got)
		require.Equal(t, []string{"s1", "s2", "s3"}, p.seen())
	})
}

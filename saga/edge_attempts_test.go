package saga_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// attempted is a hook that keeps the numbers of the attempts, and then fails.
func attempted(seen *[]int, err error) func(context.Context, *orderRun) error {
	return func(_ context.Context, r *orderRun) error {
		*seen = append(*seen, r.Attempt())
		return err
	}
}

// The numbers of attempts go up over all runs, and through a death: none is used twice, and a death may cost one.
func TestAttemptsAreCountedOverRunsAndDeaths(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		var seen []int
		busy := errors.New("busy")
		twice := func(_ int, s *steps.Step[order, voucher]) { s.Retry(steps.RetryPolicy{PerRun: 2}) }
		a := newProcess(t, world, store, chain{p: p, declare: twice, before: attempted(&seen, busy)}.of(1))
		for range 2 {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		}
		require.Equal(t, []int{1, 2, 3, 4}, seen)

		var b *process[order, []string]
		b = newProcess(t, world, store, chain{p: p, declare: twice, before: func(_ context.Context, r *orderRun) error {
			seen = append(seen, r.Attempt())
			if len(seen) == 6 {
				b.net.Die() // during the second attempt of this run
			}
			return busy
		}}.of(1))
		_, err := b.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)

		c := newProcess(t, world, store, chain{p: p, declare: twice, before: attempted(&seen, nil)}.of(1))
		c.clk.Advance(theLease)
		_, err = c.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, seen)
	})
}

// MaxAttempts bounds the calls over all runs and deaths, and then the failure is permanent.
func TestMaxAttemptsHoldsOverRunsAndDeaths(t *testing.T) {
	for _, dies := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("dies in call %d", dies), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				calls := 0
				limited := func(i int, s *steps.Step[order, voucher]) {
					if i == 1 {
						s.Retry(steps.RetryPolicy{PerRun: 2}).MaxAttempts(3)
					}
				}
				of := func(kill func()) *saga.Definition[order, []string] {
					return chain{p: p, declare: limited, after: at("s2", func(context.Context, *orderRun) error {
						if calls++; calls == dies {
							kill()
						}
						return errors.New("busy")
					})}.of(2)
				}
				var err error
				for range 4 {
					var a *process[order, []string]
					a = newProcess(t, world, store, of(func() { a.net.Die() }))
					_, err = a.o.Run(t.Context(), theKey, theOrder)
					if errors.Is(err, saga.ErrFailed) {
						break
					}
					world.Advance(theLease)
				}
				e := sagaError(t, err, saga.ErrFailed)
				require.Equal(t, saga.CodeMaxAttempts, e.Code)
				require.Equal(t, "s2", e.Step)
				require.Equal(t, 3, calls)
				require.Equal(t, []string{"s1", "s2", "s2", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
			})
		})
	}
}

// The end of the caller's patience is no failure: also when it was the last attempt, the run is interrupted, and it is
// for the next call to say that there are no more.
func TestACancelledLastAttemptInterrupts(t *testing.T) {
	for name, ctxOf := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 4*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				ctx, cancel := ctxOf(t.Context())
				defer cancel()
				calls := 0
				d := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) { s.MaxAttempts(1) },
					after: at("s2", func(ctx context.Context, _ *orderRun) error {
						calls++
						if name == "cancelled" {
							cancel()
						}
						<-ctx.Done()
						return ctx.Err()
					})}.of(2)
				o := newSaga(t, d, store, saga.WithClock(clk), saga.WithMargin(3500*time.Millisecond))
				_, err := o.Run(ctx, theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusInterrupted, rec.Status)
				require.True(t, rec.Steps[1].Unknown)
				_, err = o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, saga.CodeMaxAttempts, sagaError(t, err, saga.ErrFailed).Code)
				require.Equal(t, 1, calls)
				require.Equal(t, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
			})
		})
	}
}

// How long a run waits between its attempts is the policy's affair, not the lease's, which is renewed meanwhile.
func TestAWaitLongerThanTheLeaseIsWaited(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		const lease = time.Second
		var clk clock.Fake
		p, store := new(participant), open()
		d := chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
			s.Retry(steps.RetryPolicy{Initial: 10 * lease, Max: time.Hour, Jitter: -1})
		}, before: func(_ context.Context, r *orderRun) error {
			if r.Attempt() < 3 {
				return errors.New("busy")
			}
			return nil
		}}.of(1)
		got := goRun(t.Context(), newSaga(t, d, store, saga.WithClock(&clk), saga.WithLease(lease)))
		for len(got) == 0 {
			clk.Advance(lease / 10)
			polls := 0
			require.Eventually(t, func() bool { // until the heartbeat that may be due is made
				if polls++; polls%10 == 0 { // slowly: a heartbeat on a busy machine needs its time, too
					clk.Advance(lease / 1000)
				}
				rec, err := store.Get(t.Context(), "t#chain#1")
				return len(got) > 0 || err == nil && rec.LeaseUntil.Sub(clk.Now()) > lease/2
			}, 10*time.Second, time.Millisecond)
		}
		require.NoError(t, within(t, got).err)
		require.GreaterOrEqual(t, clk.Mono(), 30*lease, "10 and 20 seconds")
	})
}

// What a participant asks for holds for everybody: a delay that outlasts the lease is stored, and the run laid down.
func TestADelayHoldsForOtherProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		delay  time.Duration
		waited bool
	}{"within the lease": {10 * time.Second, true}, "longer than the lease": {40 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				full := true
				d := chain{p: p, declare: retryOften, before: at("s1", func(context.Context, *orderRun) error {
					if !full {
						return nil
					}
					full = false
					return steps.RetryAfter(c.delay, errors.New("full"))
				})}.of(1)
				a, b := newProcess(t, world, store, d), newProcess(t, world, store, d)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				if c.waited {
					require.NoError(t, err)
					require.GreaterOrEqual(t, a.clk.Mono(), c.delay)
					return
				}
				require.Equal(t, c.delay, sagaError(t, err, saga.ErrInterrupted).RetryAfter)
				b.clk.Advance(c.delay - time.Second)
				for _, again := range []func() error{
					func() error { _, err := b.o.Run(t.Context(), theKey, theOrder); return err },
					func() error { _, err := b.o.Resume(t.Context(), theKey); return err },
				} {
					e := sagaError(t, again(), saga.ErrInterrupted)
					require.Equal(t, "s1", e.Step)
					require.InDelta(t, time.Second, e.RetryAfter, float64(10*time.Millisecond))
				}
				got, err := saga.Recover(t.Context(), b.o)
				require.NoError(t, err)
				require.Zero(t, got)
				require.Empty(t, p.seen())
				b.clk.Advance(time.Second)
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.True(t, recordOf(t, store, theKey, "chain").NotBefore.IsZero())
			})
		})
	}
}

// The delay that the last attempt of a run asked for is stored too, and a death during a delay that is waited for makes
// nobody call earlier than asked: the lease outlasts it.
func TestADelayOutlivesTheProcessThatWasAskedForIt(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		const delay = 28 * time.Second
		var asked time.Time
		var a *process[order, []string]
		a = newProcess(t, world, store, chain{p: p, declare: retryOften, before: at("s1", func(context.Context, *orderRun) error {
			a.clk.Advance(9 * time.Second) // no heartbeat is due yet
			asked = a.clk.Now()
			return steps.RetryAfter(delay, nil)
		})}.of(1), saga.WithListener(saga.Listener{StepRetried: func(context.Context, saga.StepEvent) { a.net.Die() }}))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Error(t, err)
		rec := recordOf(t, store, theKey, "chain")
		free := rec.LeaseUntil
		if free.IsZero() {
			free = rec.NotBefore
		}
		require.False(t, free.Before(asked.Add(delay)), "asked at %v, free at %v", asked, free)
	})
}

func TestBackwardsADelayHoldsToo(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		full := true
		d := chain{p: p, before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: func(context.Context, *orderRun) error {
			if full {
				return steps.RetryAfter(time.Hour, errors.New("full"))
			}
			return nil
		}}.of(2)
		a, b := newProcess(t, world, store, d), newProcess(t, world, store, d)
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, time.Hour, sagaError(t, err, saga.ErrInterrupted).RetryAfter)
		full = false
		b.clk.Advance(59 * time.Minute)
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		require.InDelta(t, time.Minute, sagaError(t, err, saga.ErrInterrupted).RetryAfter, float64(time.Second))
		require.Equal(t, []string{"s1"}, p.seen())
		b.clk.Advance(time.Minute)
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, []string{"s1", "undo s1 known"}, p.seen())
	})
}

// A failed attempt that there is no room to record is tried again all the same.
func TestAnAttemptThatCanNotBeNotedIsTriedAgain(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p := new(participant)
		a := newProcess(t, world, open(), chain{p: p, declare: retryOften, after: func(_ context.Context, r *orderRun) error {
			if r.Attempt() == 1 {
				return errors.New("busy")
			}
			return nil
		}}.of(1))
		a.net.On(sagatest.Records("s1", state.StepPending), sagatest.Fail(fmt.Errorf("full: %w", state.ErrTooLarge)))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1", "s1"}, p.seen())
	})
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// watchman tells when a step starts although it is recorded as done, or at the wrong moment.
type watchman struct {
	mu    sync.Mutex
	store state.Store
	wrong []string
}

func (w *watchman) hook(ctx context.Context, r *orderRun) error {
	rec, err := w.store.Get(ctx, r.Key().String())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if rec.Done(r.Step()) || rec.Status != state.StatusInProgress {
		w.wrong = append(w.wrong, fmt.Sprintf("%s starts while it is %s in a run that is %s", r.Step(), stepStatuses(rec), rec.Status))
	}
	return nil
}

var offsets = map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour, "a second ahead": time.Second, "a day ahead": 24 * time.Hour}

// A worker whose clock is wrong comes in at every moment of a run at work. It may take the run up, which costs the holder
// the lease; no step starts that is done, and the result is that of a run without it.
func TestAWorkerWithAWrongClockCostsTimeAlone(t *testing.T) {
	for name, offset := range offsets {
		for _, m := range moments() {
			t.Run(name+" "+m.String(), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					w := &watchman{store: store}
					var a, b *process[order, []string]
					var theirs error
					c := chain{p: p}
					script := m.plant(&c, func() *sagatest.FaultyStore { return a.net }, func() { _, theirs = b.o.Run(t.Context(), theKey, theOrder) })
					if c.before == nil && !m.made { // who is robbed while an answer is under way can't know yet
						c.before = w.hook
					}
					a = newProcess(t, world, store, c.of(3))
					script()
					b = newProcess(t, world, store, chain{p: p, before: w.hook}.of(3))
					b.clk.Set(world.Now().Add(offset))
					out, err := a.o.Run(t.Context(), theKey, theOrder)
					want := []string{"s1-1", "s2-2", "s3-3"}
					switch {
					case errors.Is(err, saga.ErrLeaseLost):
						require.NoError(t, theirs)
					case err != nil:
						require.NoError(t, err)
					default:
						require.Equal(t, want, out)
						if theirs != nil {
							require.Positive(t, sagaError(t, theirs, saga.ErrInProgress).RetryAfter)
						}
					}
					out, err = newProcess(t, world, store, chain{p: p}.of(3)).o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					require.Equal(t, want, out, "no recorded result is lost")
					require.Empty(t, w.wrong)
				})
			})
		}
	}
}

// The holder's own clock jumps at every moment. Its lease is a matter of its monotonic clock: it goes on.
func TestAHoldersClockThatJumpsChangesNothing(t *testing.T) {
	for name, offset := range offsets {
		for _, m := range moments() {
			t.Run(name+" "+m.String(), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					var a *process[order, []string]
					c := chain{p: p}
					script := m.plant(&c, func() *sagatest.FaultyStore { return a.net }, func() { a.clk.Set(world.Now().Add(offset)) })
					a = newProcess(t, world, store, c.of(3))
					script()
					out, err := a.o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, out)
					require.Equal(t, []string{"s1", "s2", "s3"}, p.seen())
					require.False(t, recordOf(t, store, theKey, "chain").ExpiresAt.IsZero())
				})
			})
		}
	}
}

// A wall clock that jumps neither ends a lease nor lengthens it: the step's context lives while heartbeats are made, and
// ends when they are not, whatever the time of day.
func TestTheLeaseGoesByTheMonotonicClock(t *testing.T) {
	for name, offset := range offsets {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				s := newStop(t)
				ended := make(chan struct{})
				a := newRunning(t, world, store, chain{p: p, before: at("s1", func(ctx context.Context, _ *orderRun) error {
					go func() { <-ctx.Done(); close(ended) }()
					s.here()
					return ctx.Err()
				})}.of(1))
				got := goRun(t.Context(), a.o)
				within(t, s.reached)
				a.clk.Set(world.Now().Add(offset))
				rec, renewed := recordOf(t, store, theKey, "chain"), a.clk.Mono()
				for end := renewed + 3*saga.DefaultLease; a.clk.Mono() < end; {
					a.clk.Advance(saga.DefaultLease / 100)
					require.Eventually(t, func() bool { // until the heartbeat that may be due is made
						a.clk.Advance(time.Millisecond)
						if now := recordOf(t, store, theKey, "chain"); now.Revision > rec.Revision {
							rec, renewed = now, a.clk.Mono()
						}
						// A little more than a third: time that passes during a slow write is taken off the lease that it brings.
						return a.clk.Mono()-renewed < saga.DefaultLease*2/5
					}, 10*time.Second, time.Millisecond)
				}
				require.Equal(t, offset < 0, rec.LeaseUntil.Before(world.Now()), "others go by the time of day")
				select {
				case <-ended:
					require.Fail(t, "the lease was renewed, and the context has ended")
				default:
				}
				s.release()
				require.NoError(t, within(t, got).err)
			})
		})
	}
}

// A run that died is taken over by a worker behind as soon as the lease is over by its own clock: later, but never lost.
func TestAWorkerBehindTakesOverLater(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		var a *process[order, []string]
		a = newProcess(t, world, store, chain{p: p, after: at("s2", func(context.Context, *orderRun) error { a.net.Die(); return nil })}.of(3))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Error(t, err)
		b := newProcess(t, world, store, chain{p: p}.of(3))
		b.clk.Set(world.Now().Add(-time.Hour))
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		wait := sagaError(t, err, saga.ErrInProgress).RetryAfter
		require.InDelta(t, time.Hour+saga.DefaultLease, wait, float64(time.Second))
		b.clk.Advance(wait)
		out, err := b.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, out)
	})
}

// What is ended is not forgotten before its retention has passed by the reader's clock and the store's; a clock that is
// wrong by more than that forgets it, as documented.
func TestAnEndedRunAndAWrongClock(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		day := func() *saga.Definition[order, []string] { return chain{p: p}.of(1).Retention(24 * time.Hour) }
		_, err := newProcess(t, world, store, day()).o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		for _, offset := range []time.Duration{-time.Hour, time.Hour, 23 * time.Hour} {
			b := newProcess(t, world, store, day())
			b.clk.Set(world.Now().Add(offset))
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			_, err = b.o.Resume(t.Context(), theKey)
			require.NoError(t, err)
		}
		require.Equal(t, []string{"s1"}, p.seen())
		b := newProcess(t, world, store, day())
		b.clk.Set(world.Now().Add(25 * time.Hour))
		_, err = b.o.Resume(t.Context(), theKey)
		sagaError(t, err, saga.ErrNotFound)
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1", "s1"}, p.seen())
	})
}

// A delay that a step asked for is kept by each worker's own clock, forwards and backwards in time.
func TestADelayAndAWrongClock(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		full := true
		d := chain{p: p, before: func(context.Context, *orderRun) error {
			if full {
				return steps.RetryAfter(time.Hour, nil)
			}
			return nil
		}}.of(1)
		_, err := newProcess(t, world, store, d).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		full = false
		behind := newProcess(t, world, store, d)
		behind.clk.Set(world.Now().Add(-time.Hour))
		_, err = behind.o.Run(t.Context(), theKey, theOrder)
		require.InDelta(t, 2*time.Hour, sagaError(t, err, saga.ErrInterrupted).RetryAfter, float64(time.Second))
		ahead := newProcess(t, world, store, d)
		ahead.clk.Set(world.Now().Add(time.Hour + time.Second))
		_, err = ahead.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
	})
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// fated is a saga of two steps whose second ends as the input says.
func fated(p *participant, healed func() bool) *saga.Definition[order, steps.None] {
	first := steps.Do("first", func(_ context.Context, r *orderRun) error { p.do("first", r.IdempotencyKey()); return nil }).
		Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[steps.None]) error {
			if r.Input.No == "blocked" {
				return steps.Permanent(errBusy)
			}
			return nil
		})
	second := steps.Do("second", func(context.Context, *orderRun) error { return nil }).Retry(once)
	fate := func(_ context.Context, r *orderRun) error {
		switch {
		case !healed() || r.Input.No == "interrupted":
			return errBusy
		case r.Input.No == "completed":
			return nil
		}
		return steps.Permanent(errRefuse)
	}
	third := steps.Do("third", fate).Retry(once)
	return saga.Define("fated", saga.NoResult[order], first, second, third)
}

// Every run that nobody is at work on is taken up once, and counted by what became of it.
func TestRecoverCountsWhatBecameOfRuns(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		healed := false
		a := newProcess(t, world, store, fated(new(participant), func() bool { return healed }))
		start := func(fate, id string) {
			_, err := a.o.Run(t.Context(), saga.Key{Tenant: fate, ID: id}, order{No: fate})
			sagaError(t, err, saga.ErrInterrupted)
		}
		for i := range 3 {
			start("completed", fmt.Sprint(i))
		}
		for i := range 2 {
			start("failed", fmt.Sprint(i))
		}
		start("blocked", "0")
		for i := range 4 {
			start("interrupted", fmt.Sprint(i))
		}
		start("completed", "stolen")
		healed = true
		b := newProcess(t, world, store, fated(new(participant), func() bool { return healed }))
		b.net.On(func(c sagatest.StoreCall) bool { return sagatest.TakesUp(c) && c.Key == "completed#fated#stolen" }, sagatest.Before(func() {
			_, err := a.o.Resume(t.Context(), saga.Key{Tenant: "completed", ID: "stolen"})
			require.NoError(t, err)
		}))
		_, err := a.o.Run(t.Context(), saga.Key{Tenant: "completed", ID: "ended before"}, order{No: "completed"})
		require.NoError(t, err)
		got, err := saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Completed: 3, Failed: 2, Blocked: 1, Interrupted: 4, Lost: 1}, got)
		got, err = saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Zero(t, got, "what is interrupted again waits a little")
		b.clk.Advance(time.Second)
		got, err = saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Interrupted: 4}, got)
	})
}

// Losing a race against a holder at work, or against a deletion, is no error.
func TestRecoverLosesRaces(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		bringTo(t, world, store, "IN_PROGRESS")
		world.Advance(theLease)
		s := newStop(t)
		quick := newProcess(t, world, store, chain{p: new(participant), before: s.hook}.of(2))
		b := newProcess(t, world, store, chain{p: new(participant)}.of(2))
		var theirs <-chan answered[[]string]
		b.net.On(sagatest.TakesUp, sagatest.Before(func() {
			theirs = goRun(t.Context(), quick.o)
			within(t, s.reached)
		}))
		got, err := saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Lost: 1}, got)
		s.release()
		require.NoError(t, within(t, theirs).err)

		require.NoError(t, store.Delete(t.Context(), "t#chain#1"))
		bringTo(t, world, store, "INTERRUPTED")
		b.net.On(sagatest.TakesUp, sagatest.Before(func() { require.NoError(t, store.Delete(t.Context(), "t#chain#1")) }))
		got, err = saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Lost: 1}, got)
	})
}

// A run that keeps stopping is left alone for a time that grows with every take-up, up to ten minutes; one whose holder
// died is taken up as soon as its lease is over.
func TestRecoverWaitsLongerEachTime(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, chain{p: p, after: failing(errBusy)}.of(1))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		recovered := func() int {
			got, err := saga.Recover(t.Context(), a.o)
			require.NoError(t, err)
			require.Equal(t, saga.Recovered{Interrupted: got.Interrupted}, got)
			return got.Interrupted
		}
		for n, seconds := range []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 600, 600, 600} {
			wait := time.Duration(seconds) * time.Second
			if wait > 0 {
				a.clk.Advance(wait - time.Millisecond)
				require.Zero(t, recovered(), "take-up %d", n+2)
				a.clk.Advance(time.Millisecond)
			}
			require.Equal(t, 1, recovered(), "take-up %d", n+2)
		}
		// The same key does not wait.
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.Zero(t, recovered())

		// And a death is no reason to wait either.
		var dies *process[order, []string]
		dies = newProcess(t, world, store, chain{p: p, before: func(context.Context, *orderRun) error { dies.net.Die(); return nil }}.of(1))
		dies.clk.Set(a.clk.Now())
		_, err = dies.o.Run(t.Context(), theKey, theOrder)
		require.Error(t, err)
		require.Zero(t, recovered())
		a.clk.Advance(saga.DefaultLease + time.Millisecond)
		require.Equal(t, 1, recovered())
	})
}

func TestRecoverGoesOnBackwards(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		bringTo(t, world, store, "COMPENSATING")
		b := newProcess(t, world, store, chain{p: new(participant)}.of(2))
		got, err := saga.Recover(t.Context(), b.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Failed: 1}, got)
		for _, where := range []string{"COMPLETED", "FAILED", "REVERSED", "forwards", "backwards"} {
			require.NoError(t, store.Delete(t.Context(), "t#chain#1"))
			bringTo(t, world, store, where)
			before := recordOf(t, store, theKey, "chain")
			b.clk.Advance(time.Hour)
			got, err := saga.Recover(t.Context(), b.o)
			require.NoError(t, err)
			require.Zero(t, got, where)
			require.Equal(t, before, recordOf(t, store, theKey, "chain"), where)
		}
	})
}

// More runs than a page, of several sagas on one store: each orchestrator takes up its own, all of them.
func TestRecoverSeveralSagasPageByPage(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		broken := true
		once := func(name string) *saga.Definition[int, int] {
			return saga.Once(name, func(_ context.Context, r *steps.Run[int]) (int, error) {
				if broken {
					return 0, steps.RetryAfter(0, errBusy)
				}
				return r.Input, nil
			})
		}
		a, b, c := newProcess(t, world, store, once("a")), newProcess(t, world, store, once("b")), newProcess(t, world, store, once("c"))
		const many = 2*state.DefaultPage + 5
		for i := range many {
			_, err := a.o.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, i)
			sagaError(t, err, saga.ErrInterrupted)
		}
		for i, o := range []*saga.Orchestrator[int, int]{b.o, c.o} {
			_, err := o.Run(t.Context(), saga.Key{ID: "1"}, i)
			sagaError(t, err, saga.ErrInterrupted)
		}
		broken = false
		down := errors.New("down")
		b.net.On(sagatest.Method("List"), sagatest.Fail(down))
		got, err := saga.Recover(t.Context(), b.o, a.o)
		require.ErrorIs(t, err, down)
		require.ErrorIs(t, err, saga.ErrStore)
		require.ErrorContains(t, err, "recover b")
		require.Equal(t, saga.Recovered{Completed: many}, got, "and nothing of c")
		got, err = saga.Recover(t.Context(), a.o, b.o, c.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Completed: 2}, got)
	})
}

func TestRecoverEndsWithItsContext(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		for i := range 5 {
			_, err := newProcess(t, world, store, chain{p: new(participant), after: failing(errBusy)}.of(1)).o.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("shutting down")
		ran := 0
		a := newProcess(t, world, store, chain{p: new(participant), before: func(ctx context.Context, _ *orderRun) error {
			if ran++; ran == 2 {
				cancel(gone)
				return ctx.Err()
			}
			return nil
		}}.of(1), saga.WithRecoverers(1))
		got, err := saga.Recover(ctx, a.o)
		require.ErrorIs(t, err, gone)
		require.Equal(t, saga.Recovered{Completed: 1, Interrupted: 1}, got)
	})
}

// A run that hangs holds up neither the other runs nor other sagas, and no more are in hand than was said.
func TestRecoverTakesSeveralUpAtOnce(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		const many, atOnce = 12, 3
		store := open()
		broken := true
		release := make(chan struct{})
		var inHand, most, quick atomic.Int32
		slow := func(name string) *saga.Definition[int, int] {
			return saga.Once(name, func(_ context.Context, r *steps.Run[int]) (int, error) {
				switch {
				case broken:
					return 0, errBusy
				case r.Input >= atOnce-1:
					quick.Add(1)
					return r.Input, nil
				}
				n := inHand.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				defer inHand.Add(-1)
				<-release
				return r.Input, nil
			})
		}
		// The clock stands still, so that no lease lapses while a step hangs.
		process := func(name string) *saga.Orchestrator[int, int] {
			still := new(clock.Fake)
			still.Set(world.Now())
			return newSaga(t, slow(name), store, saga.WithClock(still), saga.WithRecoverers(atOnce), saga.WithRetry(steps.RetryPolicy{PerRun: 1}))
		}
		a, b := process("a"), process("b")
		for i := range many {
			_, err := a.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, i)
			sagaError(t, err, saga.ErrInterrupted)
			_, err = b.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, i)
			sagaError(t, err, saga.ErrInterrupted)
		}
		broken = false
		done := make(chan saga.Recovered, 1)
		go func() {
			got, err := saga.Recover(t.Context(), a, b)
			assert.NoError(t, err)
			done <- got
		}()
		// Of each saga two runs hang, and the third place is enough for all the others.
		assert.Eventually(t, func() bool { return quick.Load() == 2*(many-atOnce+1) && inHand.Load() == 2*(atOnce-1) }, time.Minute, time.Millisecond)
		close(release)
		require.Equal(t, saga.Recovered{Completed: 2 * many}, within(t, done))
		require.EqualValues(t, 2*(atOnce-1), most.Load())
	})
}

// With one recoverer, a run waits until the one before it has come to rest.
func TestRecoverOneAfterTheOther(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		var inHand, most atomic.Int32
		broken := true
		d := saga.Once("a", func(context.Context, *steps.Run[int]) (int, error) {
			if broken {
				return 0, errBusy
			}
			most.Store(max(most.Load(), inHand.Add(1)))
			runtime.Gosched()
			inHand.Add(-1)
			return 0, nil
		})
		a := newProcess(t, world, store, d, saga.WithRecoverers(1), saga.WithRetry(steps.RetryPolicy{PerRun: 1}))
		for i := range 10 {
			_, err := a.o.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, i)
			sagaError(t, err, saga.ErrInterrupted)
		}
		broken = false
		got, err := saga.Recover(t.Context(), a.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Completed: 10}, got)
		require.EqualValues(t, 1, most.Load())
	})
	for _, n := range []int{-1, 0, 1001} {
		_, err := saga.New(saga.Once("a", func(context.Context, *steps.Run[int]) (int, error) { return 0, nil }), memory.New(), saga.WithRecoverers(n))
		require.ErrorIs(t, err, saga.ErrInvalidDefinition)
		require.ErrorContains(t, err, fmt.Sprintf("WithRecoverers(%d)", n))
	}
}

// The loop recovers at once and then every so often, in spite of a store that fails for a while, until its context ends.
func TestRecoverLoop(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		core, logs := observer.New(zap.ErrorLevel)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("shutting down")
		attempts := 0
		var times []time.Duration
		var a *process[order, []string]
		a = newProcess(t, world, store, chain{p: new(participant), before: func(context.Context, *orderRun) error {
			times = append(times, a.clk.Mono())
			if attempts++; attempts < 4 {
				return errBusy
			}
			cancel(gone)
			return nil
		}}.of(1), saga.WithLogger(zap.New(core)))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		began := a.clk.Mono()
		a.net.On(sagatest.Nth("List", 2), sagatest.Fail(errors.New("down")))
		require.ErrorIs(t, saga.RecoverLoop(ctx, time.Minute, a.o), gone)
		require.Equal(t, state.StatusCompleted, recordOf(t, store, theKey, "chain").Status)
		require.Len(t, logs.FilterMessage("recovery_failed").All(), 1)
		var gaps []time.Duration
		for _, at := range times[1:] {
			gaps = append(gaps, (at - began).Round(time.Second))
		}
		require.Equal(t, []time.Duration{0, 2 * time.Minute, 3 * time.Minute}, gaps, "the second time the store was down")

		require.ErrorContains(t, saga.RecoverLoop(t.Context(), 0, a.o), "positive")
		require.ErrorContains(t, saga.RecoverLoop(t.Context(), time.Second), "no orchestrator")
		none, err := saga.Recover(t.Context())
		require.NoError(t, err)
		require.Zero(t, none)
	})
}

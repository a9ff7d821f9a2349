package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const day = 24 * time.Hour

// remembered declares that s2's participant remembers a key for a day, and, if answer is set, a Probe.
func remembered(answer *bool) func(int, *steps.Step[order, voucher]) {
	return func(i int, s *steps.Step[order, voucher]) {
		if i != 1 {
			return
		}
		s.KeyValid(day)
		if answer != nil {
			s.Probe(func(context.Context, *orderRun) (voucher, bool, error) { return voucher{"probed"}, *answer, nil })
		}
	}
}

func no() *bool  { return new(bool) }
func yes() *bool { b := true; return &b }

// An unknown step whose first attempt is older than its key is remembered is not called again blindly.
func TestAStepIsNotCalledAgainWithAForgottenKey(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		probe  *bool
		status state.Status
		calls  []string
		out    string // of s2
	}{
		"remembered":               {day, nil, state.StatusCompleted, []string{"s1", "s2", "s2", "s3"}, "s2-2"},
		"remembered, it happened":  {day, yes(), state.StatusCompleted, []string{"s1", "s2", "s3"}, "probed"},
		"forgotten":                {day + time.Second, nil, state.StatusBlocked, []string{"s1", "s2"}, ""},
		"forgotten, it happened":   {day + time.Second, yes(), state.StatusCompleted, []string{"s1", "s2", "s3"}, "probed"},
		"forgotten, it didn't":     {day + time.Second, no(), state.StatusCompleted, []string{"s1", "s2", "s2", "s3"}, "s2-2"},
		"forgotten a long time":    {100 * day, nil, state.StatusBlocked, []string{"s1", "s2"}, ""},
		"remembered, it didn't":    {time.Hour, no(), state.StatusCompleted, []string{"s1", "s2", "s2", "s3"}, "s2-2"},
		"an hour before it's over": {day - time.Hour, nil, state.StatusCompleted, []string{"s1", "s2", "s2", "s3"}, "s2-2"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				busy := true
				a := newProcess(t, world, store, chain{p: p, declare: remembered(c.probe), after: at("s2", func(context.Context, *orderRun) error {
					if busy {
						return errBusy
					}
					return nil
				})}.of(3))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				busy = false
				a.clk.Advance(c.age)
				out, err := a.o.Run(t.Context(), theKey, theOrder)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, c.status, rec.Status)
				require.Equal(t, c.calls, p.seen())
				if c.status == state.StatusBlocked {
					e := sagaError(t, err, saga.ErrBlocked)
					require.Equal(t, saga.CodeKeyExpired, e.Code)
					require.Equal(t, "s2", e.Step)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.out, out[1])
			})
		})
	}
}

// The age counts from the first attempt, not from the last.
func TestTheAgeOfAKeyCountsFromItsFirstCall(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p := new(participant)
		a := newProcess(t, world, open(), chain{p: p, declare: remembered(nil), after: at("s2", failing(errBusy))}.of(2))
		for range 2 {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
			a.clk.Advance(day/2 + time.Second)
		}
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeKeyExpired, sagaError(t, err, saga.ErrBlocked).Code)
		require.Equal(t, []string{"s1", "s2", "s2"}, p.seen(), "the third time it is a day and two seconds old")
	})
}

// Also within one run, whose waits are long.
func TestAKeyIsForgottenDuringAWait(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p := new(participant)
		a := newProcess(t, world, open(), chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
			s.KeyValid(time.Minute).Retry(steps.RetryPolicy{Initial: 10 * time.Second, Max: time.Hour, Multiplier: 1, Jitter: -1, PerRun: 100})
		}, after: at("s1", failing(errBusy))}.of(1))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeKeyExpired, sagaError(t, err, saga.ErrBlocked).Code)
		require.Len(t, p.seen(), 7, "at 0, 10 ... 60 seconds")
	})
}

// A death leaves no trace of when the call was made: it counts from the last write before it, which is early enough.
func TestTheAgeOfAKeyBehindADeath(t *testing.T) {
	for name, c := range map[string]struct {
		age     time.Duration
		blocked bool
	}{"remembered": {day - time.Minute, false}, "forgotten": {day + time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				var a *process[order, []string]
				a = newProcess(t, world, store, chain{p: p, declare: remembered(nil), after: at("s2", func(context.Context, *orderRun) error { a.net.Die(); return nil })}.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, err, sagatest.ErrDead)
				b := newProcess(t, world, store, chain{p: p, declare: remembered(nil)}.of(2))
				b.clk.Advance(c.age)
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				if c.blocked {
					require.Equal(t, saga.CodeKeyExpired, sagaError(t, err, saga.ErrBlocked).Code)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

// A step that was not called is not called too late, however long the run has rested before it; nor does that rest count
// against it when the first call's process dies.
func TestARestBeforeTheFirstCallDoesNotCount(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		ctx, cancel := context.WithCancel(t.Context())
		first := newProcess(t, world, store, chain{p: p, declare: remembered(nil), after: at("s1", func(context.Context, *orderRun) error { cancel(); return nil })}.of(2))
		_, err := first.o.Run(ctx, theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.Equal(t, []string{"s1"}, p.seen())

		world.Advance(3 * day)
		var dies *process[order, []string]
		dies = newProcess(t, world, store, chain{p: p, declare: remembered(nil), after: at("s2", func(context.Context, *orderRun) error { dies.net.Die(); return nil })}.of(2))
		_, err = dies.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)
		require.Equal(t, []string{"s1", "s2"}, p.seen())

		last := newProcess(t, world, store, chain{p: p, declare: remembered(nil)}.of(2))
		last.clk.Advance(theLease)
		_, err = last.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1", "s2", "s2"}, p.seen())
	})
}

// The ways out of a forgotten key.
func TestAPersonResolvesAForgottenKey(t *testing.T) {
	for name, c := range map[string]struct {
		verb  func(ctx context.Context, o *saga.Orchestrator[order, []string]) error
		kind  error
		calls []string
	}{
		"retry": {func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
			return o.Retry(ctx, theKey, "it did not happen")
		}, nil, []string{"s1", "s2", "s2"}},
		"mark done": {func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
			return o.MarkDone(ctx, theKey, "s2", voucher{"by hand"}, "found it")
		}, nil, []string{"s1", "s2"}},
		"force compensate": {func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
			return o.ForceCompensate(ctx, theKey, "leave it")
		}, saga.ErrFailed, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				interruptedAt(t, p, store, world)
				world.Advance(2 * day)
				a := newProcess(t, world, store, chain{p: p, declare: remembered(nil)}.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrBlocked)
				require.NoError(t, c.verb(t.Context(), a.o))
				_, err = a.o.Run(t.Context(), theKey, theOrder)
				if c.kind == nil {
					require.NoError(t, err)
				} else {
					sagaError(t, err, c.kind)
				}
				require.Equal(t, c.calls, p.seen())
			})
		})
	}
}

// From the deadline on no forward step starts, in whatever state it finds the run.
func TestNoStepStartsBehindTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		stops string // the step at which the run rests until the deadline has passed
		pivot bool   // s2 is the pivot
		probe *bool  // of s2
		kind  error
		calls []string
	}{
		"before anything is done":          {"s1", false, nil, saga.ErrFailed, []string{"s1", "undo s1 unknown"}},
		"without a pivot":                  {"s2", false, nil, saga.ErrFailed, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}},
		"before the pivot":                 {"s1", true, nil, saga.ErrFailed, []string{"s1", "undo s1 unknown"}},
		"at the pivot, nobody to ask":      {"s2", true, nil, saga.ErrBlocked, []string{"s1", "s2"}},
		"at the pivot, it did not happen":  {"s2", true, no(), saga.ErrFailed, []string{"s1", "s2", "undo s1 known"}},
		"at the pivot, it happened":        {"s2", true, yes(), saga.ErrBlocked, []string{"s1", "s2"}},
		"behind the pivot":                 {"s3", true, nil, saga.ErrBlocked, []string{"s1", "s2", "s3"}},
		"it happened, and may be undone":   {"s2", false, yes(), saga.ErrFailed, []string{"s1", "s2", "undo s2 known", "undo s1 known"}},
		"it didn't happen, and is undone:": {"s2", false, no(), saga.ErrFailed, []string{"s1", "s2", "undo s1 known"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				of := func(err error) *saga.Definition[order, []string] {
					return chain{p: p, after: at(c.stops, failing(err)), declare: func(i int, s *steps.Step[order, voucher]) {
						if i == 1 && c.pivot {
							s.Pivot()
						}
						if i == 1 && c.probe != nil {
							s.Probe(func(context.Context, *orderRun) (voucher, bool, error) { return voucher{"probed"}, *c.probe, nil })
						}
					}}.of(3).Deadline(time.Hour)
				}
				_, err := newProcess(t, world, store, of(errBusy)).o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				world.Advance(time.Hour)
				b := newProcess(t, world, store, of(nil))
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				e := sagaError(t, err, c.kind)
				require.Equal(t, saga.CodeDeadline, e.Code)
				require.Equal(t, c.calls, p.seen())
				if errors.Is(c.kind, saga.ErrFailed) {
					return
				}
				// An operator's Retry starts the time anew, and it runs out anew.
				require.NoError(t, b.o.Retry(t.Context(), theKey, "one more hour"))
				b.clk.Advance(time.Hour)
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, saga.CodeDeadline, sagaError(t, err, saga.ErrBlocked).Code)
				require.NoError(t, b.o.Retry(t.Context(), theKey, "and another"))
				b.clk.Advance(time.Hour - time.Second)
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
			})
		})
	}
}

// A step that is at work when the deadline comes is not interrupted, and what it did is recorded; if it was the last one,
// the run is completed.
func TestTheDeadlineInterruptsNoStep(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		kind error
	}{"the first": {"s1", saga.ErrFailed}, "the last": {"s2", nil}} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p := new(participant)
				var a *process[order, []string]
				a = newProcess(t, world, open(), chain{p: p, after: at(c.step, func(ctx context.Context, _ *orderRun) error {
					a.clk.Advance(20 * time.Second)
					return ctx.Err()
				})}.of(2).Deadline(10*time.Second))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				if c.kind == nil {
					require.NoError(t, err)
					return
				}
				e := sagaError(t, err, c.kind)
				require.Equal(t, saga.CodeDeadline, e.Code)
				require.Equal(t, []string{"s1", "undo s1 known"}, p.seen())
			})
		})
	}
}

// A run that lacks only its result is completed behind the deadline too: no step starts for that.
func TestTheDeadlineDoesNotKeepAResultBack(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		l := list{p: new(participant), result: errBusy}
		_, err := newProcess(t, world, store, l.of("a b").Deadline(time.Minute)).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		world.Advance(time.Hour)
		l.result = nil
		out, err := newProcess(t, world, store, l.of("a b").Deadline(time.Minute)).o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, "a b", out)
	})
}

// Retries of one run end with the deadline as well.
func TestTheDeadlineEndsRetries(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p := new(participant)
		a := newProcess(t, world, open(), chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
			s.Retry(steps.RetryPolicy{Initial: 10 * time.Second, Max: 10 * time.Second, Jitter: -1, PerRun: 100})
		}, after: failing(errBusy)}.of(1).Deadline(time.Minute))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeDeadline, sagaError(t, err, saga.ErrFailed).Code)
		require.Equal(t, []string{"s1", "s1", "s1", "s1", "s1", "s1", "undo s1 unknown"}, p.seen(), "at 0, 10 ... 50 seconds")
	})
}

// A little more than the margin is left, and the functions' context has ended already: no call is made, and an at-most-once
// step gets no mark for one that is not.
func TestNoCallStartsInAContextThatHasEnded(t *testing.T) {
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), saga.DefaultMargin+50*time.Millisecond)
	}
	for name, declare := range map[string]func(*steps.Step[order, steps.None]){
		"a step":              func(*steps.Step[order, steps.None]) {},
		"an at-most-once one": func(s *steps.Step[order, steps.None]) { s.AtMostOnce() },
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			a := steps.Do("a", func(context.Context, *orderRun) error { calls++; return nil })
			declare(a)
			o := newSaga(t, saga.Define("op", saga.NoResult[order], a), memory.New())
			ctx, cancel := short()
			defer cancel()
			_, err := o.Run(ctx, theKey, theOrder)
			require.ErrorIs(t, err, saga.ErrInterrupted)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			rec, err := o.Get(t.Context(), theKey)
			require.NoError(t, err)
			require.Zero(t, calls)
			require.Equal(t, state.StepRecord{Name: "a", Status: state.StepPending}, rec.Steps[0])
			_, err = o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
		})
	}
	t.Run("a compensation", func(t *testing.T) {
		undone, ready := 0, false
		a := steps.Do("a", func(context.Context, *orderRun) error { return nil }).
			Compensate(func(context.Context, *orderRun, steps.Outcome[steps.None]) error {
				undone++
				if !ready {
					return errors.New("not now")
				}
				return nil
			}).CompensateRetry(steps.RetryPolicy{PerRun: 1})
		b := steps.Do("b", func(context.Context, *orderRun) error { return steps.Permanent(errors.New("no")) })
		o := newSaga(t, saga.Define("op", saga.NoResult[order], a, b), memory.New())
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrInterrupted)
		ctx, cancel := short()
		defer cancel()
		_, err = o.Run(ctx, theKey, theOrder)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, undone)
		ready = true
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrFailed)
	})
}

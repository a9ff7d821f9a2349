package saga_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// failsAt is a chain whose step k, from 1, is refused for good and has no effect.
func failsAt(p *participant, k int) chain {
	return chain{p: p, before: at(fmt.Sprintf("s%d", k), failing(steps.WithCode("refused", steps.Permanent(errRefuse))))}
}

// undoCalls are the calls by which the steps k-1 ... 1 are undone.
func undoCalls(k int) (out []string) {
	key := theKey
	key.Operation = "chain"
	for i := k - 1; i >= 1; i-- {
		out = append(out, fmt.Sprintf("undo s%d known %s/s%d/compensate", i, key.String(), i))
	}
	return out
}

// requireUndone checks a run of five that failed at step k and was undone.
func requireUndone(t *testing.T, rec *state.Record, k int) {
	t.Helper()
	require.Equal(t, state.StatusFailed, rec.Status)
	require.Equal(t, state.StatusFailed, rec.EndsAs)
	require.Empty(t, rec.CurrentStep)
	require.Empty(t, rec.Owner)
	require.False(t, rec.ExpiresAt.IsZero())
	require.Equal(t, fmt.Sprintf("s%d", k), rec.Failure.Step)
	require.Equal(t, "refused", rec.Failure.Code)
	require.Equal(t, errRefuse.Error(), rec.Failure.Message)
	require.Empty(t, rec.Failure.NotUndone)
	for i, s := range rec.Steps {
		want := state.StepPending
		if i < k-1 {
			want = state.StepCompensated
		}
		require.Equal(t, want, s.Status, s.Name)
		require.False(t, s.Unknown, s.Name)
	}
}

// Refused for good at step k: the steps before it are undone, the last one first, once each; the same key gets the same
// answer, and calls nothing.
func TestAPermanentFailureUndoesWhatWasDone(t *testing.T) {
	for k := 1; k <= five; k++ {
		t.Run(fmt.Sprintf("s%d", k), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				o := newSaga(t, failsAt(p, k).of(five), open(), saga.WithClock(clk))
				want := append(calledKeys(theKey)[:k-1:k-1], undoCalls(k)...)
				for _, replayed := range []bool{false, true, true} {
					var info saga.RunInfo
					got, err := o.Run(t.Context(), theKey, theOrder, saga.Report(&info))
					require.Nil(t, got)
					e := sagaError(t, err, saga.ErrFailed)
					require.Equal(t, fmt.Sprintf("s%d", k), e.Step)
					require.Equal(t, "refused", e.Code)
					require.Empty(t, e.NotUndone)
					require.ErrorContains(t, err, errRefuse.Error())
					require.Equal(t, saga.RunInfo{Replayed: replayed, Status: state.StatusFailed, Runs: 1}, info)
					require.Len(t, p.all(), len(want))
				}
				require.Equal(t, want, p.all())
				requireUndone(t, recordOf(t, open(), theKey, "chain"), k)
				_, err := o.Resume(t.Context(), theKey)
				sagaError(t, err, saga.ErrFailed)
				got, err := saga.Recover(t.Context(), o)
				require.NoError(t, err)
				require.Zero(t, got)
				require.Equal(t, want, p.all())
			})
		})
	}
}

// The process dies between each undo and its record: the next one goes on backwards, at that undo, and calls no step.
func TestADeathInTheMiddleOfUndoingGoesOnBackwards(t *testing.T) {
	const k = 4
	for undo := 1; undo < k; undo++ {
		for how, takeUp := range map[string]func(context.Context, *saga.Orchestrator[order, []string]) error{
			"the same call again": func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
				_, err := o.Run(ctx, theKey, theOrder)
				return err
			},
			"recovery": func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
				got, err := saga.Recover(ctx, o)
				if err != nil || got != (saga.Recovered{Failed: 1}) {
					return fmt.Errorf("recovered %+v: %w", got, err)
				}
				_, err = o.Resume(ctx, theKey)
				return err
			},
		} {
			t.Run(fmt.Sprintf("undo of s%d/%s", undo, how), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p := new(participant)
					dying := &mortal{Store: open()}
					c := failsAt(p, k)
					c.afterUndo = at(fmt.Sprintf("s%d", undo), func(context.Context, *orderRun) error { dying.kill(); return nil })
					_, err := newSaga(t, c.of(five), dying, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, errDead)
					rec := recordOf(t, open(), theKey, "chain")
					require.Equal(t, state.StatusCompensating, rec.Status)
					require.Equal(t, fmt.Sprintf("s%d", undo), rec.CurrentStep)

					// By now step k would go through: nobody asks it.
					o := newSaga(t, chain{p: p}.of(five), open(), saga.WithClock(clk))
					_, err = o.Run(t.Context(), theKey, theOrder)
					sagaError(t, err, saga.ErrInProgress)
					lapse(clk)
					sagaError(t, takeUp(t.Context(), o), saga.ErrFailed)

					undos := undoCalls(k)
					want := append(calledKeys(theKey)[:k-1:k-1], again(undos, k-undo)...)
					require.Equal(t, want, p.all())
					requireUndone(t, recordOf(t, open(), theKey, "chain"), k)
				})
			})
		}
	}
}

// The process dies at each write of a run that fails at its fourth step, just before the write is made or just after.
// Whatever is called, the run ends undone.
func TestADeathAtEveryWriteOfAFailingRun(t *testing.T) {
	const k, forward = 4, 4 // Create and three steps, then the turn, then three undos
	for n := int64(1); n <= forward+1+k-1; n++ {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, made: %v", n, landed), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p := new(participant)
					dying := &mortal{Store: open(), dieAt: n, landed: landed}
					_, err := newSaga(t, failsAt(p, k).of(five), dying, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, saga.ErrStore)
					lapse(clk)
					_, err = newSaga(t, failsAt(p, k).of(five), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					e := sagaError(t, err, saga.ErrFailed)
					require.Equal(t, "s4", e.Step)
					rec := recordOf(t, open(), theKey, "chain")
					require.Equal(t, state.StatusFailed, rec.Status)
					require.Empty(t, e.NotUndone)

					var want []string
					switch {
					case n <= 1 || landed && n <= forward:
						// s4's own attempt may have been lost with the process, so its compensation closes its key.
						want = []string{"s1", "s2", "s3"}
					case n <= forward: // the step whose record was lost is called again
						want = again([]string{"s1", "s2", "s3"}, int(n-1))
					default:
						want = []string{"s1", "s2", "s3"}
					}
					undos := []string{"undo s3 known", "undo s2 known", "undo s1 known"}
					switch {
					case n == forward+1 && !landed || n == forward && landed:
						undos = append([]string{"undo s4 unknown"}, undos...)
					case n > forward+1 && !landed:
						undos = again(undos, int(n-forward-1))
					}
					require.Equal(t, append(want, undos...), p.seen())
				})
			})
		}
	}
}

// blockedAtUndo brings a run of five to BLOCKED: step 4 is refused, and so is the undo of step 2.
func blockedAtUndo(t *testing.T, clk *clock.Fake, store state.Store, p *participant) *saga.Orchestrator[order, []string] {
	t.Helper()
	c := failsAt(p, 4)
	undos := 0
	c.beforeUndo = at("s2", func(context.Context, *orderRun) error {
		undos++
		return steps.WithCode("no_refund", steps.Permanent(errors.New("the account is closed")))
	})
	o := newSaga(t, c.of(five), store, saga.WithClock(clk))
	_, err := o.Run(t.Context(), theKey, theOrder)
	e := sagaError(t, err, saga.ErrBlocked)
	require.Equal(t, "s2", e.Step, "the step that can't be undone")
	require.Equal(t, "no_refund", e.Code)
	require.ErrorContains(t, err, "the account is closed")
	require.Equal(t, []string{"s1", "s2", "s3", "undo s3 known"}, p.seen())
	require.Equal(t, 1, undos)
	return o
}

// A compensation that fails for good leaves the run BLOCKED, naming the step and the cause, for every caller.
func TestACompensationThatFailsForGoodBlocks(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		o := blockedAtUndo(t, clk, open(), p)
		rec := recordOf(t, open(), theKey, "chain")
		require.Equal(t, state.StatusBlocked, rec.Status)
		require.Equal(t, state.StatusFailed, rec.EndsAs)
		require.Equal(t, "s2", rec.CurrentStep)
		require.Equal(t, "the account is closed", rec.Steps[1].UndoError.Message)
		require.Equal(t, "s4", rec.Failure.Step, "why the run goes backwards is kept")
		require.Equal(t, "COMPENSATING", string(rec.Steps[1].Status))
		require.Empty(t, rec.Owner)
		require.Zero(t, rec.LeaseUntil)

		lapse(clk)
		calls := p.all()
		for range 2 {
			_, err := o.Run(t.Context(), theKey, theOrder)
			e := sagaError(t, err, saga.ErrBlocked)
			require.Equal(t, "s2", e.Step)
			require.Equal(t, "no_refund", e.Code)
			require.ErrorContains(t, err, "the account is closed")
		}
		got, err := saga.Recover(t.Context(), o)
		require.NoError(t, err)
		require.Zero(t, got, "recovery leaves it to a person")
		require.ErrorIs(t, o.Cancel(t.Context(), theKey, "x"), saga.ErrNotAllowed)
		require.ErrorIs(t, o.Reverse(t.Context(), theKey, "x"), saga.ErrNotAllowed)
		require.Equal(t, calls, p.all())
	})
}

// The operator's verbs lead out of it.
func TestVerbsLeadOutOfABlockedUndo(t *testing.T) {
	type op = *saga.Operator
	full := theKey
	full.Operation = "chain"
	for name, tc := range map[string]struct {
		verb func(ctx context.Context, o op) error
		want []string // calls behind those before
		kept string   // the undo attempts' verb in the audit
	}{
		"retry": {
			verb: func(ctx context.Context, o op) error { return o.Retry(ctx, full, "the account is open again") },
			want: []string{"undo s2 known", "undo s1 known"}, kept: "retry",
		},
		"mark_compensated": {
			verb: func(ctx context.Context, o op) error {
				return o.MarkCompensated(ctx, full, "s2", "paid back by hand")
			},
			want: []string{"undo s1 known"}, kept: "mark_compensated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				store := open()
				blockedAtUndo(t, clk, store, p)
				ctx := saga.ActorContext(t.Context(), "ann")
				before := p.seen()
				require.NoError(t, tc.verb(ctx, saga.NewOperator(store)))
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusCompensating, rec.Status)
				require.Equal(t, before, p.seen(), "a verb runs nothing itself")
				last := rec.Audit[len(rec.Audit)-1]
				require.Equal(t, "ann", last.Actor)
				require.Equal(t, tc.kept, last.Verb)
				require.Equal(t, "s2", last.Step)
				require.NotEmpty(t, last.Note)

				_, err := newSaga(t, failsAt(p, 4).of(five), store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				e := sagaError(t, err, saga.ErrFailed)
				require.Equal(t, "s4", e.Step)
				require.Equal(t, append(before, tc.want...), p.seen())
				requireUndone(t, recordOf(t, store, theKey, "chain"), 4)
			})
		})
	}
}

// What can't be said of such a run is refused, and changes nothing.
func TestVerbsThatABlockedUndoRefuses(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store := open()
		o := blockedAtUndo(t, clk, store, new(participant))
		before := recordOf(t, store, theKey, "chain")
		require.ErrorIs(t, o.MarkDone(t.Context(), theKey, "s4", voucher{"x"}, "n"), saga.ErrNotAllowed)
		require.ErrorIs(t, o.ForceCompensate(t.Context(), theKey, "n"), saga.ErrNotAllowed)
		require.ErrorIs(t, o.MarkCompensated(t.Context(), theKey, "s3", "n"), saga.ErrNotAllowed, "undone already")
		require.ErrorIs(t, o.MarkCompensated(t.Context(), theKey, "s4", "n"), saga.ErrNotAllowed, "never applied")
		require.ErrorIs(t, o.MarkCompensated(t.Context(), theKey, "nobody", "n"), saga.ErrNotAllowed)
		require.Equal(t, before, recordOf(t, store, theKey, "chain"))
	})
}

// A compensation that keeps failing transiently rests as COMPENSATING, run after run, and goes on when it can.
func TestACompensationThatFailsForNowIsTriedAgain(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		c := failsAt(p, 3)
		busy := true
		var attempts []int
		c.beforeUndo = at("s2", func(_ context.Context, r *orderRun) error {
			attempts = append(attempts, r.Attempt())
			if busy {
				return errors.New("busy")
			}
			return nil
		})
		c.declare = func(_ int, s *steps.Step[order, voucher]) { s.CompensateRetry(steps.RetryPolicy{PerRun: 2}) }
		o := newSaga(t, c.of(five), open(), saga.WithClock(clk))
		for n := 1; n <= 3; n++ {
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.Equal(t, "s2", sagaError(t, err, saga.ErrInterrupted).Step)
			rec := recordOf(t, open(), theKey, "chain")
			require.Equal(t, state.StatusCompensating, rec.Status)
			require.Equal(t, "s2", rec.CurrentStep)
			require.Equal(t, 2*n, rec.Steps[1].UndoAttempts)
			require.Equal(t, "busy", rec.Steps[1].UndoError.Message)
			require.Empty(t, rec.Owner, "the lease is released")
		}
		busy = false
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "s3", sagaError(t, err, saga.ErrFailed).Step)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, attempts)
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s1 known"}, p.seen())
	})
}

// Whoever takes over from a holder that died in a compensation knows how often it was called: the calls that failed are
// recorded before the next one, and the one at hand counts.
func TestAttemptsOfACompensationWhoseHolderDied(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		var a *process[order, []string]
		var attempts []int
		c := failsAt(new(participant), 3)
		c.beforeUndo = at("s2", func(_ context.Context, r *orderRun) error {
			attempts = append(attempts, r.Attempt())
			if len(attempts) == 3 {
				a.net.Die()
			}
			if len(attempts) <= 3 {
				return errors.New("busy")
			}
			return nil
		})
		c.declare = func(_ int, s *steps.Step[order, voucher]) { s.CompensateRetry(steps.RetryPolicy{PerRun: 5}) }
		a = newProcess(t, world, store, c.of(three))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		s2 := recordOf(t, store, theKey, "chain").Steps[1]
		require.Equal(t, 2, s2.UndoAttempts)
		require.Equal(t, "busy", s2.UndoError.Message)

		b := newProcess(t, world, store, c.of(three))
		b.clk.Advance(2 * saga.DefaultLease)
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, []int{1, 2, 3, 4}, attempts)
		require.Equal(t, 4, recordOf(t, store, theKey, "chain").Steps[1].UndoAttempts)
	})
}

// Each write around the calls of a compensation is made and not answered, not made at first, or the last one that its
// process makes or fails to make; the answer to the take-over that follows a death is lost or not. No call has a number
// that is too low, or more than one too high.
func TestAttemptsOfACompensationWhateverBecomesOfAWrite(t *testing.T) {
	const firstNote, undone = 5, 7 // behind Create, two steps and the turn: two calls that fail, and one that doesn't
	takeOvers := map[string]sagatest.Fault{"answered": sagatest.Before(func() {}), "answer lost": sagatest.LoseAnswer()}
	fates := map[string]struct {
		dies, landed bool
		fault        sagatest.Fault
	}{
		"answer lost":       {fault: sagatest.LoseAnswer()},
		"not made at first": {fault: sagatest.Fail(sagatest.ErrNoAnswer)},
		"dies before":       {dies: true},
		"dies after":        {dies: true, landed: true},
	}
	for n := firstNote; n <= undone; n++ {
		for fate, f := range fates {
			for takeOver, first := range takeOvers {
				t.Run(fmt.Sprintf("write %d %s, take-over %s", n, fate, takeOver), func(t *testing.T) {
					eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
						var attempts []int
						c := failsAt(new(participant), 3)
						c.beforeUndo = at("s2", func(_ context.Context, r *orderRun) error {
							if attempts = append(attempts, r.Attempt()); len(attempts) <= 2 {
								return errors.New("busy")
							}
							return nil
						})
						c.declare = func(_ int, s *steps.Step[order, voucher]) { s.CompensateRetry(steps.RetryPolicy{PerRun: 5}) }
						store := &mortal{Store: open(), landed: f.landed}
						if f.dies {
							store.dieAt = int64(n)
						}
						a := newProcess(t, world, store, c.of(three))
						if !f.dies {
							a.net.On(sagatest.Nth("Commit", n-1), f.fault)
						}
						_, err := a.o.Run(t.Context(), theKey, theOrder)
						if f.dies {
							sagaError(t, err, saga.ErrInterrupted)
							b := newProcess(t, world, open(), c.of(three))
							b.clk.Advance(2 * saga.DefaultLease)
							b.net.On(sagatest.Nth("Commit", 1), first)
							_, err = b.o.Run(t.Context(), theKey, theOrder)
						}
						sagaError(t, err, saga.ErrFailed)
						require.GreaterOrEqual(t, len(attempts), 3)
						for i, number := range attempts {
							require.GreaterOrEqual(t, number, i+1, "%v", attempts)
							require.LessOrEqual(t, number, i+2, "%v", attempts)
						}
						s2 := recordOf(t, open(), theKey, "chain").Steps[1]
						require.Equal(t, state.StepCompensated, s2.Status)
						require.Equal(t, attempts[len(attempts)-1], s2.UndoAttempts)
						if !f.dies {
							require.Equal(t, []int{1, 2, 3}, attempts)
						}
					})
				})
			}
		}
	}
}

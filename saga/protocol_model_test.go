package saga_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The tests of this file are the counterexamples that a model of the protocol found to its shortcuts: each interleaving
// is played to the real code, which takes none of them.

// Own writes are not recognised by owner and revision. 1: create. 2: a cancel request is stored. 3: step 1 returns
// Permanent. 4: the turn is written, and its answer is lost.
func TestTheTurnIsReallyWrittenWhenACancelCameFirst(t *testing.T) {
	for _, fault := range []struct {
		name string
		of   sagatest.Fault
	}{{"answered", sagatest.Before(func() {})}, {"answer lost", sagatest.LoseAnswer()}, {"not made at first", sagatest.Fail(sagatest.ErrNoAnswer)}} {
		t.Run(fault.name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, chain{p: p, after: at("s1", func(ctx context.Context, r *orderRun) error {
					if err := store.RequestCancel(ctx, r.Key().String(), state.CancelRequest{Reason: "why not"}); err != nil {
						return err
					}
					return steps.Permanent(errRefuse)
				})}.of(2))
				a.net.On(sagatest.Becomes(state.StatusCompensating), fault.of)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, sagaError(t, err, saga.ErrFailed), errRefuse)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusFailed, rec.Status)
				require.Equal(t, errRefuse.Error(), rec.Failure.Message)
				require.EqualValues(t, 3, rec.Revision, "created, turned round, ended: nothing was to be undone")
				require.Equal(t, []string{"s1"}, p.seen())
			})
		})
	}
}

// The same with the step's result: the write that the cancel refuses is not taken for made, and its result is recorded
// with the turn.
func TestAResultRefusedByACancelIsRecordedWithTheTurn(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, chain{p: p}.of(2))
		a.net.On(sagatest.Records("s1", state.StepDone), sagatest.Before(func() {
			require.NoError(t, store.RequestCancel(t.Context(), recordOf(t, store, theKey, "chain").Key, state.CancelRequest{Reason: "why not"}))
		}))
		a.net.On(sagatest.Becomes(state.StatusCompensating), sagatest.LoseAnswer())
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeCancelled, sagaError(t, err, saga.ErrFailed).Code)
		require.Equal(t, []string{"s1", "undo s1 known"}, p.seen())
	})
}

// beating brings a process to where its first heartbeat has met the script.
func beating(t *testing.T, clk *clock.Fake, net *sagatest.FaultyStore) {
	t.Helper()
	require.Eventually(t, func() bool {
		clk.Advance(time.Second)
		return len(net.Calls(sagatest.Heartbeats)) > 0
	}, 10*time.Second, time.Millisecond)
}

// A heartbeat is in flight when the step returns: the step's commit follows it, and is really made.
func TestAHeartbeatInFlightIsNotTakenForTheCommitBehindIt(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		step, wire := newStop(t), newStop(t)
		a := newProcess(t, world, store, chain{p: p, after: at("s1", step.hook)}.of(2))
		a.net.On(sagatest.Heartbeats, sagatest.Before(wire.here))
		got := goRun(t.Context(), a.o)
		within(t, step.reached)
		beating(t, a.clk, a.net)
		within(t, wire.reached)
		step.release() // returns nil while the heartbeat is under way
		require.Never(t, func() bool { return len(a.net.Calls(sagatest.Records("s1", state.StepDone))) > 0 },
			50*time.Millisecond, 5*time.Millisecond, "writes are serial")
		wire.release()
		require.NoError(t, within(t, got).err)
		require.Equal(t, []string{"s1", "s2"}, p.seen())
		require.Equal(t, "DONE DONE", stepStatuses(recordOf(t, store, theKey, "chain")))
	})
}

// A heartbeat that was never answered is settled before the step's commit: it may have been made, and may still be.
func TestAHeartbeatInDoubtIsSettledBeforeTheCommit(t *testing.T) {
	for name, lands := range map[string]int{"never": 0, "before the commit": 1, "after the commit": 2} {
		t.Run("it lands "+name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				step := newStop(t)
				var late sagatest.Late
				a := newProcess(t, world, store, chain{p: p, after: at("s1", step.hook)}.of(2))
				a.net.Always(sagatest.Heartbeats, late.Fault)
				got := goRun(t.Context(), a.o)
				within(t, step.reached)
				beating(t, a.clk, a.net)
				// It is sent until its sender gives up.
				require.Eventually(t, func() bool { return len(a.net.Calls(sagatest.Heartbeats)) >= 5 }, 10*time.Second, time.Millisecond)
				beat := a.net.Calls(sagatest.Heartbeats)[0].Change.WriteID
				for _, c := range a.net.Calls(sagatest.Heartbeats) {
					require.Equal(t, beat, c.Change.WriteID, "one logical write")
				}
				a.net.Clear()
				if lands == 1 {
					require.NoError(t, late.Land(t.Context()))
				}
				if lands == 2 {
					a.net.On(sagatest.Records("s1", state.StepDone), sagatest.After(func() {
						require.ErrorIs(t, late.Land(t.Context()), state.ErrConflict)
					}))
				}
				step.release()
				require.NoError(t, within(t, got).err)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusCompleted, rec.Status)
				require.EqualValues(t, 4, rec.Revision, "created, renewed once, two steps")
				require.Equal(t, []string{"s1", "s2"}, p.seen())
			})
		})
	}
}

// A commit in doubt is not followed by another write: INTERRUPTED in its place could be taken for it. What lands later
// counts, and what doesn't is done again by the next holder.
func TestACommitInDoubtIsTheLastWrite(t *testing.T) {
	type moment int
	const (
		never moment = iota
		beforeTheTakeOver
		afterTheTakeOver
	)
	for name, lands := range map[string]moment{"never": never, "before the take-over": beforeTheTakeOver, "after the take-over": afterTheTakeOver} {
		t.Run("it lands "+name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				var late sagatest.Late
				a, b := newProcess(t, world, store, chain{p: p}.of(2)), newProcess(t, world, store, chain{p: p}.of(2))
				a.net.Always(sagatest.Records("s1", state.StepDone), late.Fault)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, sagaError(t, err, saga.ErrInterrupted), saga.ErrStore)
				id := a.net.Calls(sagatest.Records("s1", state.StepDone))[0].Change.WriteID
				for _, c := range a.net.Calls(sagatest.Method("Commit")) {
					require.Equal(t, id, c.Change.WriteID, "no other write follows")
				}
				want := []string{"s1", "s1", "s2"}
				if lands == beforeTheTakeOver {
					require.NoError(t, late.Land(t.Context()))
					want = []string{"s1", "s2"}
					rec := recordOf(t, store, theKey, "chain")
					require.Equal(t, state.StatusInProgress, rec.Status)
					require.Equal(t, "DONE PENDING", stepStatuses(rec))
				}
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInProgress)
				b.clk.Advance(theLease)
				if lands == afterTheTakeOver {
					b.net.On(sagatest.TakesUp, sagatest.After(func() { require.ErrorIs(t, late.Land(t.Context()), state.ErrConflict) }))
				}
				out, err := b.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, []string{"s1-1", "s2-2"}, out)
				require.Equal(t, want, p.seen())
			})
		})
	}
}

// Two goroutines of one process create at once: the one that comes second doesn't take the other's record for its own,
// although they share an orchestrator.
func TestTheRecordOfAnotherGoroutineIsNotTakenForOnesOwn(t *testing.T) {
	for name, first := range map[string]sagatest.Fault{"answered": sagatest.Before(func() {}), "answer lost": sagatest.LoseAnswer()} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p := new(participant)
				a := newProcess(t, world, open(), chain{p: p}.of(2))
				var second error
				a.net.On(sagatest.Nth("Create", 1), func(ctx context.Context, c sagatest.StoreCall, send func(context.Context) error) error {
					err := first(ctx, c, send)
					_, second = a.o.Run(t.Context(), theKey, theOrder)
					return err
				})
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				sagaError(t, second, saga.ErrInProgress)
				require.Equal(t, []string{"s1", "s2"}, p.seen())
			})
		})
	}
}

// The owner is new at each take-up: a goroutine that has lost the run to another one of the same process writes nothing
// and calls nothing more. 1: A creates. 2: its lease lapses. 3: B, same process, takes over. 4: step 1 fails for good and
// the run turns round. 5: A's step 1 returns nil.
func TestAnotherTakeUpOfTheSameProcessIsAnotherOwner(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		first, undo := newStop(t), newStop(t)
		a := newProcess(t, world, store, chain{p: p,
			before: at("s1", func(_ context.Context, r *orderRun) error {
				if r.Attempt() == 1 {
					first.here()
					return nil
				}
				return steps.Permanent(errRefuse)
			}),
			beforeUndo: undo.hook,
		}.of(2))
		a.net.Always(sagatest.Heartbeats, sagatest.Fail(sagatest.ErrNoAnswer))
		one := goRun(t.Context(), a.o)
		within(t, first.reached)
		a.clk.Advance(theLease)
		two := goRun(t.Context(), a.o)
		within(t, undo.reached)
		require.Equal(t, state.StatusCompensating, recordOf(t, store, theKey, "chain").Status)
		first.release()
		sagaError(t, within(t, one).err, saga.ErrLeaseLost)
		undo.release()
		require.ErrorIs(t, sagaError(t, within(t, two).err, saga.ErrFailed), errRefuse)
		require.Equal(t, []string{"s1", "undo s1 unknown"}, p.seen(), "s2 never starts")
		require.Equal(t, state.StatusFailed, recordOf(t, store, theKey, "chain").Status)
	})
}

// A take-over marks the step at hand as unknown: the effect of a holder that died is undone even if the next attempt is
// refused for good.
func TestATakeOverUndoesWhatTheDeadHolderMayHaveDone(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, chain{p: p, after: at("s1", failing(nil))}.of(2))
		a.net.On(sagatest.Records("s1", state.StepDone), func(context.Context, sagatest.StoreCall, func(context.Context) error) error {
			a.net.Die()
			return sagatest.ErrDead
		})
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)
		b := newProcess(t, world, store, chain{p: p, before: failing(steps.Permanent(errRefuse))}.of(2))
		b.clk.Advance(theLease)
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, sagaError(t, err, saga.ErrFailed), errRefuse)
		require.Equal(t, []string{"s1", "undo s1 unknown"}, p.seen())
	})
}

// What a zombie brings late never stands in for the result that counts, whether its write comes at once or lands later.
func TestALateResultNeverReplacesTheOneThatCounts(t *testing.T) {
	for name, delayed := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				store := open()
				pause := newStop(t)
				named := func(who string) *saga.Definition[order, string] {
					one := steps.New("one", func(context.Context, *orderRun) (string, error) {
						if who == "A" {
							pause.here()
						}
						return "of " + who, nil
					})
					two := steps.Do("two", func(context.Context, *orderRun) error { return nil })
					return saga.Define("zombie", func(_ context.Context, r *orderRun) (string, error) { return one.Output(r), nil }, one, two)
				}
				a, b := newProcess(t, world, store, named("A")), newProcess(t, world, store, named("B"))
				var late sagatest.Late
				if delayed {
					a.net.Always(sagatest.Records("one", state.StepDone), late.Fault)
				}
				got := goRun(t.Context(), a.o)
				within(t, pause.reached)
				b.clk.Advance(theLease)
				b.net.On(sagatest.Records("two", state.StepDone), sagatest.Before(func() {
					pause.release()
					if !delayed {
						sagaError(t, within(t, got).err, saga.ErrLeaseLost)
						return
					}
					sagaError(t, within(t, got).err, saga.ErrInterrupted)
					require.ErrorIs(t, late.Land(t.Context()), state.ErrConflict)
				}))
				out, err := b.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, "of B", out)
				one, _ := recordOf(t, store, theKey, "zombie").Step("one")
				require.JSONEq(t, `"of B"`, string(one.Output))
			})
		})
	}
}

// bank is a participant that can close a key: what arrives under it later has no effect.
type bank struct {
	mu      sync.Mutex
	charged map[string]bool
	closed  map[string]bool
}

var errClosed = errors.New("the key is closed")

func (b *bank) charge(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed[key] {
		return errClosed
	}
	b.charged[key] = true
	return nil
}

func (b *bank) void(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed[key] = true
	delete(b.charged, key)
}

// A call that is under way when its holder loses the run can't be stopped. The compensation is given the key that it
// carries, and can close it, so that FAILED means that nothing stands, also of what arrives later.
func TestACompensationCanCloseTheKeyOfACallUnderWay(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		outside := &bank{charged: map[string]bool{}, closed: map[string]bool{}}
		wire := newStop(t)
		of := func(do func(*orderRun) error) *saga.Definition[order, steps.None] {
			charge := steps.Do("charge", func(_ context.Context, r *orderRun) error { return do(r) }).
				Compensate(func(_ context.Context, _ *orderRun, did steps.Outcome[steps.None]) error {
					assert.False(t, did.Known)
					outside.void(did.Key.String())
					return nil
				})
			return saga.Define("bank", saga.NoResult[order], charge)
		}
		a := newProcess(t, world, store, of(func(r *orderRun) error {
			wire.here()
			return outside.charge(r.IdempotencyKey())
		}))
		b := newProcess(t, world, store, of(func(*orderRun) error { return steps.Permanent(errRefuse) }))
		got := goRun(t.Context(), a.o)
		within(t, wire.reached)
		b.clk.Advance(theLease)
		_, err := b.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		wire.release()
		sagaError(t, within(t, got).err, saga.ErrLeaseLost)
		require.Empty(t, outside.charged)
	})
}

// A holder whose lease is over by its own clock starts no call: here the answer to a write took so long that another one
// has taken the run up and moved it on meanwhile. Played after each write of a run.
func TestNoCallStartsOnALeaseThatIsOver(t *testing.T) {
	for n := range 3 {
		t.Run(fmt.Sprintf("after write %d", n+1), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				b := newProcess(t, world, store, chain{p: p, before: func(context.Context, *orderRun) error { return steps.Permanent(errRefuse) }}.of(3))
				a := newProcess(t, world, store, chain{p: p}.of(3))
				slow := sagatest.After(func() {
					a.clk.Advance(saga.DefaultLease - time.Second)
					b.clk.Advance(theLease)
					_, err := b.o.Run(t.Context(), theKey, theOrder)
					sagaError(t, err, saga.ErrFailed)
				})
				var calls atomic.Int32
				a.net.On(func(c sagatest.StoreCall) bool { return sagatest.Writes(c) && int(calls.Add(1)) == n+1 }, slow)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrLeaseLost)
				want := [][]string{
					{"undo s1 unknown"},
					{"s1", "undo s2 unknown", "undo s1 known"},
					{"s1", "s2", "undo s3 unknown", "undo s2 known", "undo s1 known"},
				}[n]
				require.Equal(t, want, p.seen())
			})
		})
	}
}

// An undo that stops leaves COMPENSATING, never INTERRUPTED: whoever comes next goes on backwards.
func TestAnUndoThatStopsKeepsItsDirection(t *testing.T) {
	flaky := errors.New("flaky")
	for name, script := range map[string]func(a *process[order, []string]){
		"the compensation fails": func(*process[order, []string]) {},
		"the answer is lost": func(a *process[order, []string]) {
			a.net.Always(sagatest.Records("s1", state.StepCompensating), sagatest.LoseAnswer())
		},
		"the process dies": func(a *process[order, []string]) {
			a.net.On(sagatest.Records("s1", state.StepCompensating), sagatest.Before(a.net.Die))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				refuse := at("s2", failing(steps.Permanent(errRefuse)))
				a := newProcess(t, world, store, chain{p: p, before: refuse, beforeUndo: failing(flaky)}.of(2))
				script(a)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				require.Equal(t, state.StatusCompensating, recordOf(t, store, theKey, "chain").Status)

				b := newProcess(t, world, store, chain{p: p}.of(2))
				b.clk.Advance(theLease)
				_, err = b.o.Run(t.Context(), theKey, theOrder)
				require.EqualError(t, sagaError(t, err, saga.ErrFailed).Err, errRefuse.Error())
				require.Equal(t, []string{"s1", "undo s1 known"}, p.seen())
				require.Equal(t, state.StatusFailed, recordOf(t, store, theKey, "chain").Status)
			})
		})
	}
}

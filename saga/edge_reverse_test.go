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

// completed is a process with a completed run of three steps, the second of them the pivot.
func completed(t *testing.T, world *clock.Fake, store state.Store, c chain) *process[order, []string] {
	t.Helper()
	a := newProcess(t, world, store, pivotal(c))
	_, err := a.o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err)
	return a
}

var allUndone = []string{"s1", "s2", "s3", "undo s3 known", "undo s2 known", "undo s1 known"}

func TestReverseUndoesACompletedRunOverItsPivot(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		var causes []error
		a := completed(t, world, store, chain{p: p, afterUndo: func(_ context.Context, r *orderRun) error {
			causes = append(causes, r.Cause())
			return nil
		}})
		expires := recordOf(t, store, theKey, "chain").ExpiresAt
		require.False(t, expires.IsZero())
		a.clk.Advance(time.Hour)
		require.NoError(t, a.o.Reverse(saga.ActorContext(t.Context(), "ann"), theKey, "returned"))
		require.Equal(t, allUndone, p.seen())
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusReversed, rec.Status)
		require.Equal(t, "COMPENSATED COMPENSATED COMPENSATED", stepStatuses(rec))
		require.Equal(t, saga.CodeReversed, rec.Failure.Code)
		require.Contains(t, rec.Failure.Message, "returned")
		require.Empty(t, rec.Failure.NotUndone)
		require.True(t, rec.ExpiresAt.After(expires), "kept from its new end")
		require.Len(t, rec.Audit, 1)
		require.Equal(t, state.AuditEntry{At: rec.Audit[0].At, Actor: "ann", Verb: "reverse", Note: "returned"}, rec.Audit[0])
		require.Len(t, causes, 3)
		for _, cause := range causes {
			require.ErrorContains(t, cause, "returned")
		}

		for range 2 {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.Equal(t, saga.CodeReversed, sagaError(t, err, saga.ErrReversed).Code)
			require.NotErrorIs(t, err, saga.ErrFailed)
		}
		require.NoError(t, a.o.Reverse(t.Context(), theKey, "again"), "it is reversed")
		require.Equal(t, allUndone, p.seen())
		require.Len(t, recordOf(t, store, theKey, "chain").Audit, 1)
		_, err := a.o.Run(t.Context(), theKey, order{"another", 1})
		sagaError(t, err, saga.ErrPayloadMismatch)
	})
}

// The process dies at every write of the reversal and in every compensation: whoever goes on finishes it backwards, and
// what is recorded as undone is not undone again.
func TestADeathInTheMiddleOfAReversal(t *testing.T) {
	ways := map[string]func(t *testing.T, b *process[order, []string]){
		"reverse again": func(t *testing.T, b *process[order, []string]) {
			require.NoError(t, b.o.Reverse(t.Context(), theKey, "again"))
		},
		"the same key": func(t *testing.T, b *process[order, []string]) {
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			if !errors.Is(err, saga.ErrReversed) {
				require.NoError(t, err, "the reversal had not begun")
				require.NoError(t, b.o.Reverse(t.Context(), theKey, "again"))
			}
		},
		"recovery": func(t *testing.T, b *process[order, []string]) {
			got, err := saga.Recover(t.Context(), b.o)
			require.NoError(t, err)
			require.LessOrEqual(t, got.Failed, 1)
			require.Equal(t, saga.Recovered{Failed: got.Failed}, got)
			require.NoError(t, b.o.Reverse(t.Context(), theKey, "again"))
		},
	}
	for how, goOn := range ways {
		for n := 1; n <= 4; n++ {
			for _, made := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, made: %v, %s", n, made, how), func(t *testing.T) {
					eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
						p, store := new(participant), open()
						completed(t, world, store, chain{p: p})
						a := newProcess(t, world, store, pivotal(chain{p: p}))
						die := sagatest.After(a.net.Die)
						if !made {
							die = func(context.Context, sagatest.StoreCall, func(context.Context) error) error {
								a.net.Die()
								return sagatest.ErrDead
							}
						}
						a.net.On(sagatest.Nth("Commit", n), die)
						require.ErrorIs(t, a.o.Reverse(t.Context(), theKey, "returned"), sagatest.ErrDead)
						undos := len(p.seen()) - 3
						require.Equal(t, n-1, undos)

						b := newProcess(t, world, store, pivotal(chain{p: p}))
						b.clk.Advance(theLease)
						goOn(t, b)
						want := append([]string{}, allUndone...)
						if !made && undos > 0 { // that undo is not recorded, and made again
							want = append(want[:3+undos:3+undos], allUndone[2+undos:]...)
						}
						require.Equal(t, want, p.seen())
						require.Equal(t, state.StatusReversed, recordOf(t, store, theKey, "chain").Status)
					})
				})
			}
		}
	}
}

func TestALostAnswerToAReversalChangesNothing(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint("write ", n), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := completed(t, world, store, chain{p: p})
				a.net.On(sagatest.Nth("Commit", 3+n), sagatest.LoseAnswer())
				require.NoError(t, a.o.Reverse(t.Context(), theKey, "returned"))
				require.Equal(t, allUndone, p.seen())
				require.Len(t, recordOf(t, store, theKey, "chain").Audit, 1)
			})
		})
	}
}

// A reversal that stops keeps its direction, whatever stopped it.
func TestAReversalThatStopsGoesOnBackwards(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		stuck := true
		a := completed(t, world, store, chain{p: p, beforeUndo: at("s2", func(context.Context, *orderRun) error {
			if stuck {
				return errors.New("busy")
			}
			return nil
		})})
		e := sagaError(t, a.o.Reverse(t.Context(), theKey, "returned"), saga.ErrInterrupted)
		require.Equal(t, "s2", e.Step)
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusCompensating, rec.Status)
		require.Equal(t, state.StatusReversed, rec.EndsAs)
		require.True(t, rec.ExpiresAt.IsZero(), "what is not ended does not expire")
		require.NoError(t, a.o.Cancel(t.Context(), theKey, "no"), "it goes backwards already")
		require.Equal(t, rec.Revision, recordOf(t, store, theKey, "chain").Revision, "a pivot that is done is a person's to cross")
		stuck = false
		_, err := a.o.Resume(t.Context(), theKey)
		sagaError(t, err, saga.ErrReversed)
		require.Equal(t, allUndone, p.seen())
	})
}

func TestAReversalThatIsBlockedIsLedOut(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := completed(t, world, store, chain{p: p, beforeUndo: at("s2", failing(steps.Permanent(errors.New("never"))))})
		e := sagaError(t, a.o.Reverse(t.Context(), theKey, "returned"), saga.ErrBlocked)
		require.Equal(t, "s2", e.Step)
		require.Equal(t, state.StatusBlocked, recordOf(t, store, theKey, "chain").Status)
		sagaError(t, a.o.Reverse(t.Context(), theKey, "again"), saga.ErrNotAllowed)
		require.NoError(t, a.o.MarkCompensated(t.Context(), theKey, "s2", "by hand"))
		require.NoError(t, a.o.Reverse(t.Context(), theKey, "again"))
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusReversed, rec.Status)
		require.Equal(t, []string{"s1", "s2", "s3", "undo s3 known", "undo s1 known"}, p.seen())
		require.Len(t, rec.Audit, 2)
	})
}

func TestReverseIsForCompletedRuns(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]chain{
		"interrupted":  {after: at("s1", failing(busy))},
		"compensating": {before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: failing(busy)},
		"failed":       {before: at("s1", failing(steps.Permanent(errRefuse)))},
		"blocked":      {before: at("s3", failing(steps.Permanent(errRefuse)))},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				c, store := c, open()
				c.p = new(participant)
				a := newProcess(t, world, store, pivotal(c))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.Error(t, err)
				before := recordOf(t, store, theKey, "chain")
				sagaError(t, a.o.Reverse(t.Context(), theKey, "no"), saga.ErrNotAllowed)
				require.Equal(t, before.Revision, recordOf(t, store, theKey, "chain").Revision)
				require.Empty(t, recordOf(t, store, theKey, "chain").Audit)
			})
		})
	}
	t.Run("not there", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			a := newProcess(t, world, open(), pivotal(chain{p: new(participant)}))
			sagaError(t, a.o.Reverse(t.Context(), theKey, "no"), saga.ErrNotFound)
		})
	})
	t.Run("expired", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			store := open()
			completed(t, world, store, chain{p: new(participant)})
			b := newProcess(t, world, store, pivotal(chain{p: new(participant)}))
			b.clk.Advance(saga.DefaultRetention + time.Minute)
			sagaError(t, b.o.Reverse(t.Context(), theKey, "no"), saga.ErrNotFound)
		})
	})
	t.Run("somebody is at it", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p, store := new(participant), open()
			undo := newStop(t)
			a := completed(t, world, store, chain{p: p, beforeUndo: undo.hook})
			first := make(chan error, 1)
			go func() { first <- a.o.Reverse(t.Context(), theKey, "returned") }()
			within(t, undo.reached)
			b := newProcess(t, world, store, pivotal(chain{p: p}))
			require.Positive(t, sagaError(t, b.o.Reverse(t.Context(), theKey, "me too"), saga.ErrInProgress).RetryAfter)
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInProgress)
			undo.release()
			require.NoError(t, within(t, first))
			require.Equal(t, allUndone, p.seen())
		})
	})
}

// What has no compensation stands, and is named; what has nothing to undo is not.
func TestAReversalNamesWhatStands(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		nothing := func(context.Context, *orderRun) error { return nil }
		d := saga.Define("stands", saga.NoResult[order],
			steps.Do("looked", nothing).NoCompensation(), steps.Do("sent", nothing).Pivot(), steps.Do("skipped", nothing).When(func(*orderRun) bool { return false }),
			steps.Do("told", nothing))
		store := open()
		a := newProcess(t, world, store, d)
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.NoError(t, a.o.Reverse(t.Context(), theKey, "returned"))
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, []string{"sent", "told"}, sagaError(t, err, saga.ErrReversed).NotUndone)
	})
}

// The plan was extended since: what the run never had is not undone.
func TestAReversalUndoesTheStoredPlan(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		_, err := newProcess(t, world, store, chain{p: p}.of(2)).o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		b := newProcess(t, world, store, chain{p: p}.of(3))
		require.NoError(t, b.o.Reverse(t.Context(), theKey, "returned"))
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s1 known"}, p.seen())
		require.Len(t, recordOf(t, store, theKey, "chain").Plan, 2)

		sagaError(t, newProcess(t, world, store, chain{p: p}.of(1)).o.Cancel(t.Context(), theKey, "no"), saga.ErrNotAllowed)
		other := saga.Key{Tenant: "t", ID: "2"}
		_, err = b.o.Run(t.Context(), other, theOrder)
		require.NoError(t, err)
		require.ErrorContains(t, newProcess(t, world, store, chain{p: p}.of(2)).o.Reverse(t.Context(), other, "returned"), `"s3"`)
	})
}

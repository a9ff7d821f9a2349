package saga_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

const five = 5

// fivePlain is the result of a chain of five that nothing happens to.
var fivePlain = []string{"s1-1", "s2-2", "s3-3", "s4-4", "s5-5"}

// calledKeys are the derived keys under which a chain of five calls its steps.
func calledKeys(key saga.Key) (out []string) {
	key.Operation = "chain"
	for i := range five {
		out = append(out, fmt.Sprintf("s%d %s/s%d", i+1, key.String(), i+1))
	}
	return out
}

// again is calls with the step at k, from 1, called a second time right after the first.
func again(calls []string, k int) (out []string) {
	out = append(out, calls[:k]...)
	return append(out, calls[k-1:]...)
}

func TestFiveStepsWithoutAFault(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		var info saga.RunInfo
		o := newSaga(t, chain{p: p}.of(five), open(), saga.WithClock(clk))
		got, err := o.Run(t.Context(), theKey, theOrder, saga.Report(&info))
		require.NoError(t, err)
		require.Equal(t, fivePlain, got)
		require.Equal(t, saga.RunInfo{Status: state.StatusCompleted, Runs: 1}, info)
		require.Equal(t, calledKeys(theKey), p.all())
	})
}

// The process dies after the effect and before the record of each step: what is done is not called again, the step at
// hand is, with the same key, and the result is that of a run without a fault.
func TestADeathBetweenEffectAndRecordCallsOnlyThatStepAgain(t *testing.T) {
	takeUps := map[string]func(context.Context, *saga.Orchestrator[order, []string]) ([]string, error){
		"the same call again": func(ctx context.Context, o *saga.Orchestrator[order, []string]) ([]string, error) {
			return o.Run(ctx, theKey, theOrder)
		},
		"resume": func(ctx context.Context, o *saga.Orchestrator[order, []string]) ([]string, error) {
			return o.Resume(ctx, theKey)
		},
		"recovery": func(ctx context.Context, o *saga.Orchestrator[order, []string]) ([]string, error) {
			if got, err := saga.Recover(ctx, o); err != nil || got != (saga.Recovered{Completed: 1}) {
				return nil, fmt.Errorf("recovered %+v: %w", got, err)
			}
			return o.Resume(ctx, theKey)
		},
	}
	for how, takeUp := range takeUps {
		for k := 1; k <= five; k++ {
			t.Run(fmt.Sprintf("%s/s%d", how, k), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p := new(participant)
					dying := &mortal{Store: open()}
					kill := at(fmt.Sprintf("s%d", k), func(context.Context, *orderRun) error { dying.kill(); return nil })
					first := newSaga(t, chain{p: p, after: kill}.of(five), dying, saga.WithClock(clk))
					_, err := first.Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, errDead)
					sagaError(t, err, saga.ErrInterrupted)

					second := newSaga(t, chain{p: p, before: func(_ context.Context, r *orderRun) error {
						assert.True(t, r.Resumed(), r.Step())
						want := 1
						if r.Step() == fmt.Sprintf("s%d", k) {
							want = 2
						}
						assert.Equal(t, want, r.Attempt(), r.Step())
						return nil
					}}.of(five), open(), saga.WithClock(clk))
					rec, err := second.Get(t.Context(), theKey)
					require.NoError(t, err)
					require.Equal(t, state.StatusInProgress, rec.Status)
					require.Equal(t, k-1, rec.Next())
					_, err = second.Run(t.Context(), theKey, theOrder)
					require.Positive(t, sagaError(t, err, saga.ErrInProgress).RetryAfter)

					clk.Advance(sagaError(t, err, saga.ErrInProgress).RetryAfter + time.Millisecond)
					got, err := takeUp(t.Context(), second)
					require.NoError(t, err)
					require.Equal(t, fivePlain, got)
					require.Equal(t, again(calledKeys(theKey), k), p.all())

					rec = recordOf(t, open(), theKey, "chain")
					require.Equal(t, state.StatusCompleted, rec.Status)
					require.Equal(t, 2, rec.Runs)
					got, err = second.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					require.Equal(t, fivePlain, got)
					require.Len(t, p.all(), five+1, "a replay calls nothing")
				})
			})
		}
	}
}

// One run in which every step's process dies in turn.
func TestADeathInEveryStepOfOneRun(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		for k := 1; k <= five; k++ {
			dying := &mortal{Store: open()}
			kill := at(fmt.Sprintf("s%d", k), func(context.Context, *orderRun) error { dying.kill(); return nil })
			o := newSaga(t, chain{p: p, after: kill}.of(five), dying, saga.WithClock(clk))
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.ErrorIs(t, err, errDead)
			lapse(clk)
		}
		got, err := newSaga(t, chain{p: p}.of(five), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, fivePlain, got)
		var want []string
		for _, c := range calledKeys(theKey) {
			want = append(want, c, c)
		}
		require.Equal(t, want, p.all())
		require.Equal(t, five+1, recordOf(t, open(), theKey, "chain").Runs)
	})
}

// The process dies at each write of a run, just before the write is made or just after, unanswered either way.
func TestADeathAtEveryWrite(t *testing.T) {
	for n := int64(1); n <= five+1; n++ {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, made: %v", n, landed), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p := new(participant)
					dying := &mortal{Store: open(), dieAt: n, landed: landed}
					_, err := newSaga(t, chain{p: p}.of(five), dying, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, saga.ErrStore)
					require.ErrorIs(t, err, errDead)
					before := len(p.all())
					require.Equal(t, int(n-1), before, "one write a step, and the first before any of them")

					lapse(clk)
					got, err := newSaga(t, chain{p: p}.of(five), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					require.Equal(t, fivePlain, got)
					want := calledKeys(theKey)
					if n > 1 && !landed {
						want = again(want, before)
					}
					require.Equal(t, want, p.all())
				})
			})
		}
	}
}

// The process dies at each write of the take-up that follows a death, too.
func TestADeathDuringTheTakeOver(t *testing.T) {
	for n := int64(1); n <= 3; n++ {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, made: %v", n, landed), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p := new(participant)
					run := func(store state.Store) ([]string, error) {
						return newSaga(t, chain{p: p}.of(five), store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					}
					_, err := run(&mortal{Store: open(), dieAt: 4, landed: false}) // s3 is called, and not recorded
					require.ErrorIs(t, err, errDead)
					lapse(clk)
					// Create comes first, and finds the key taken.
					_, err = run(&mortal{Store: open(), dieAt: 1 + n, landed: landed})
					require.ErrorIs(t, err, errDead)
					rec := recordOf(t, open(), theKey, "chain")
					require.Equal(t, state.StatusInProgress, rec.Status)
					if i := rec.Next(); rec.Runs == 2 && i == 2 {
						require.True(t, rec.Steps[i].Unknown, "nobody knows whether s3 was called")
						require.Equal(t, 1, rec.Steps[i].Attempts)
					}
					lapse(clk)
					got, err := run(open())
					require.NoError(t, err)
					require.Equal(t, fivePlain, got)
				})
			})
		}
	}
}

// A process that dies while it waits to try a step again leaves a run that goes on at that step.
func TestADeathWhileWaitingToTryAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		now := time.Now()
		var mine, theirs clock.Fake // nobody moves mine: its holder waits for ever
		mine.Set(now)
		theirs.Set(now.Add(saga.DefaultLease + time.Second))
		p := new(participant)
		waiting := make(chan struct{})
		d := chain{p: p, after: at("s2", failing(fmt.Errorf("busy")))}
		d.declare = retryOften
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := newSaga(t, d.of(five), &mortal{Store: open(), dieAt: 4}, saga.WithClock(&mine),
			saga.WithListener(saga.Listener{StepRetried: func(context.Context, saga.StepEvent) { close(waiting) }}))
		ended := make(chan error, 1)
		go func() { _, err := first.Run(ctx, theKey, theOrder); ended <- err }()
		<-waiting

		got, err := newSaga(t, chain{p: p}.of(five), open(), saga.WithClock(&theirs)).Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, fivePlain, got)
		require.Equal(t, again(calledKeys(theKey), 2), p.all())
		mine.AutoAdvance()
		cancel()
		require.Error(t, <-ended)
		require.Len(t, p.all(), five+1)
	})
}

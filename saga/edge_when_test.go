package saga_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// optional is a chain in which some steps are run only if the test says so.
type optional struct {
	p     *participant
	asked map[string]*atomic.Int32
	says  map[string]bool
}

func newOptional(says map[string]bool) *optional {
	o := &optional{p: new(participant), says: says, asked: map[string]*atomic.Int32{}}
	for name := range says {
		o.asked[name] = new(atomic.Int32)
	}
	return o
}

func (o *optional) chain() chain {
	return chain{p: o.p, declare: func(_ int, s *steps.Step[order, voucher]) {
		if n := o.asked[s.Name()]; n != nil {
			s.When(func(*orderRun) bool { n.Add(1); return o.says[s.Name()] })
		}
	}}
}

// Each When is asked once, before the write that records the step before it, and its answer is a part of that write: no
// write is spent on a step that is skipped.
func TestWhensAreAskedOnceAndCostNoWrite(t *testing.T) {
	for name, c := range map[string]struct {
		says   map[string]bool
		steps  string
		calls  []string
		out    []string
		writes int
	}{
		"in between":     {map[string]bool{"s2": false}, "DONE SKIPPED DONE", []string{"s1", "s3"}, []string{"s1-1", "", "s3-2"}, 3},
		"the first":      {map[string]bool{"s1": false}, "SKIPPED DONE DONE", []string{"s2", "s3"}, []string{"", "s2-1", "s3-2"}, 3},
		"the last":       {map[string]bool{"s3": false}, "DONE DONE SKIPPED", []string{"s1", "s2"}, []string{"s1-1", "s2-2", ""}, 3},
		"the last two":   {map[string]bool{"s2": false, "s3": false}, "DONE SKIPPED SKIPPED", []string{"s1"}, []string{"s1-1", "", ""}, 2},
		"all":            {map[string]bool{"s1": false, "s2": false, "s3": false}, "SKIPPED SKIPPED SKIPPED", []string{}, []string{"", "", ""}, 2},
		"none":           {map[string]bool{"s1": true, "s2": true, "s3": true}, "DONE DONE DONE", []string{"s1", "s2", "s3"}, []string{"s1-1", "s2-2", "s3-3"}, 4},
		"all but a last": {map[string]bool{"s1": false, "s2": false}, "SKIPPED SKIPPED DONE", []string{"s3"}, []string{"", "", "s3-1"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				o, store := newOptional(c.says), open()
				a := newProcess(t, world, store, o.chain().of(3))
				out, err := a.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, c.out, out)
				require.Equal(t, c.calls, o.p.seen())
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusCompleted, rec.Status)
				require.Equal(t, c.steps, stepStatuses(rec))
				require.Len(t, a.net.Calls(sagatest.Writes), c.writes)
				for step, n := range o.asked {
					require.EqualValues(t, 1, n.Load(), step)
				}
				for _, s := range rec.Steps {
					require.False(t, s.EndedAt.IsZero(), s.Name)
				}
			})
		})
	}
}

// The answer survives a death at any write, whatever the function would say now.
func TestADecisionSurvivesADeath(t *testing.T) {
	for _, says := range []bool{false, true} {
		for n := 1; n <= 4; n++ {
			for _, made := range []bool{false, true} {
				t.Run(fmt.Sprintf("says %v, write %d, made: %v", says, n, made), func(t *testing.T) {
					eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
						o, store := newOptional(map[string]bool{"s1": says, "s2": says, "s4": says}), open()
						a := newProcess(t, world, store, o.chain().of(4))
						writes := 0
						nth := func(c sagatest.StoreCall) bool {
							if sagatest.Writes(c) {
								writes++
							}
							return writes == n
						}
						die := sagatest.After(a.net.Die)
						if !made {
							die = func(context.Context, sagatest.StoreCall, func(context.Context) error) error {
								a.net.Die()
								return sagatest.ErrDead
							}
						}
						a.net.On(nth, die)
						_, err := a.o.Run(t.Context(), theKey, theOrder)
						decided := map[string]bool{}
						if rec, gone := store.Get(t.Context(), "t#chain#1"); gone == nil {
							// What is before the step at hand, and that step itself, is decided.
							for i := range min(rec.Next()+1, 4) {
								decided[rec.Steps[i].Name] = true
							}
						}
						if err == nil {
							require.False(t, says, "only the shorter run ends before that write")
						}
						for step := range o.says {
							o.says[step] = !says
							o.asked[step].Store(0)
						}
						b := newProcess(t, world, store, o.chain().of(4))
						b.clk.Advance(theLease)
						goOn := b.o.Resume // Run asks the first ones again, before it knows that the key is taken
						if len(decided) == 0 {
							goOn = func(ctx context.Context, key saga.Key) ([]string, error) { return b.o.Run(ctx, key, theOrder) }
						}
						_, err = goOn(t.Context(), theKey)
						require.NoError(t, err)
						rec := recordOf(t, store, theKey, "chain")
						for step, n := range o.asked {
							want := !says
							if decided[step] {
								want = says
							}
							s, _ := rec.Step(step)
							require.Equal(t, want, s.Status == state.StepDone, step)
							require.Equal(t, !decided[step], n.Load() == 1, step)
						}
					})
				})
			}
		}
	}
}

// A When that can't be evaluated fails the run. A death before that is recorded, at the creation or at a take-up, leaves the
// question open: the next one asks again, and doesn't take the step for one that is to be run and may have been called.
func TestAWhenThatPanicsIsAskedAgainAfterADeath(t *testing.T) {
	for _, mended := range []bool{false, true} {
		t.Run(fmt.Sprintf("mended: %v", mended), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				store, p := open(), new(participant)
				broken := true
				d := func() *saga.Definition[order, []string] {
					return chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
						if s.Name() == "s1" {
							s.When(func(*orderRun) bool {
								if broken {
									panic("oh")
								}
								return false
							})
						}
					}}.of(2)
				}
				diesAfterItsFirstWrite := func(goOn func(*process[order, []string]) error, advance time.Duration) {
					a := newProcess(t, world, store, d())
					a.clk.Advance(advance)
					a.net.On(sagatest.Writes, sagatest.After(a.net.Die))
					require.Error(t, goOn(a))
					rec := recordOf(t, store, theKey, "chain")
					require.Equal(t, state.StatusInProgress, rec.Status)
					require.Empty(t, rec.CurrentStep)
					require.Equal(t, state.StepRecord{Name: "s1", Status: state.StepPending}, rec.Steps[0])
				}
				diesAfterItsFirstWrite(func(a *process[order, []string]) error {
					_, err := a.o.Run(t.Context(), theKey, theOrder)
					return err
				}, 0)
				diesAfterItsFirstWrite(func(a *process[order, []string]) error {
					_, err := a.o.Resume(t.Context(), theKey)
					return err
				}, theLease)
				b := newProcess(t, world, store, d())
				b.clk.Advance(2 * theLease)
				broken = !mended
				_, err := b.o.Resume(t.Context(), theKey)
				rec := recordOf(t, store, theKey, "chain")
				if mended {
					require.NoError(t, err)
					require.Equal(t, "SKIPPED DONE", stepStatuses(rec))
					require.Equal(t, []string{"s2"}, p.seen())
					return
				}
				sagaError(t, err, saga.ErrFailed)
				require.Equal(t, state.StatusFailed, rec.Status)
				require.Empty(t, p.seen(), "nothing was called, so there is nothing to undo")
			})
		})
	}
}

// What a When, a step, a compensation and the result see of other steps' outputs.
func TestLookupAndOutput(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		nothing := func(context.Context, *orderRun) error { return nil }
		first := steps.New("first", func(context.Context, *orderRun) (int, error) { return 1, nil }).
			Compensate(func(context.Context, *orderRun, steps.Outcome[int]) error { return nil })
		skipped := steps.New("skipped", func(context.Context, *orderRun) (int, error) { return 2, nil }).When(func(r *orderRun) bool { return first.Output(r) == 2 })
		absent := steps.New("absent", func(context.Context, *orderRun) (int, error) { return 3, nil })
		var later *steps.Step[order, int]
		var saw []string
		see := func(where string, r *orderRun) {
			for name, s := range map[string]*steps.Step[order, int]{"first": first, "skipped": skipped, "absent": absent, "later": later} {
				if v, ok := s.Lookup(r); ok {
					saw = append(saw, fmt.Sprint(where, ": ", name, "=", v))
				}
			}
		}
		looks := steps.Do("looks", func(_ context.Context, r *orderRun) error { see("looks", r); return nil }).
			When(func(r *orderRun) bool { see("when", r); return true })
		later = steps.New("later", func(_ context.Context, r *orderRun) (int, error) { see("later", r); return 4, nil })
		d := saga.Define("looks", func(_ context.Context, r *orderRun) (string, error) { see("result", r); return "", nil }, first, skipped, looks, later)
		_, err := newProcess(t, world, open(), d).o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"when: first=1", "looks: first=1", "later: first=1", "result: first=1", "result: later=4"}, saw)

		// Output of what has none is a permanent failure that says so, wherever it is asked for, and never a crash.
		for name, s := range map[string]*steps.Step[order, int]{"skipped": skipped, "absent": absent, "self": nil} {
			key := saga.Key{ID: name}
			var asks *steps.Step[order, int]
			asks = steps.New("asks", func(_ context.Context, r *orderRun) (int, error) {
				if s == nil {
					return asks.Output(r), nil
				}
				return s.Output(r), nil
			})
			d := saga.Define("asks", saga.NoResult[order], first, skipped, asks)
			o := newProcess(t, world, open(), d).o
			_, err := o.Run(t.Context(), key, theOrder)
			e := sagaError(t, err, saga.ErrFailed)
			require.Equal(t, "asks", e.Step)
			require.ErrorContains(t, err, "no output of step")
			require.Equal(t, 1, recordOf(t, open(), key, "asks").Steps[2].Attempts, "not tried again")
		}
		undoing := steps.Do("undoing", nothing).Compensate(func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
			if first.Output(r) != 1 {
				return steps.Permanent(errRefuse)
			}
			skipped.Output(r)
			return nil
		})
		d2 := saga.Define("undoing", saga.NoResult[order], first, skipped, undoing, steps.Do("refused", failing(steps.Permanent(errRefuse))))
		_, err = newProcess(t, world, open(), d2).o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "undoing", sagaError(t, err, saga.ErrBlocked).Step)
		require.ErrorContains(t, err, "no output of step skipped")
		d3 := saga.Define("result", func(_ context.Context, r *orderRun) (int, error) { return skipped.Output(r), nil }, first, skipped)
		_, err = newProcess(t, world, open(), d3).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.ErrorContains(t, err, "no output of step skipped")
		require.Equal(t, "DONE SKIPPED", stepStatuses(recordOf(t, open(), theKey, "result")))
	})
}

// What is skipped has nothing to undo, and an unknown step stays unknown through a When behind it.
func TestSkippedStepsAreNotUndone(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		o, store := newOptional(map[string]bool{"s2": false}), open()
		c := o.chain()
		c.before = at("s3", failing(steps.Permanent(errRefuse)))
		_, err := newProcess(t, world, store, c.of(3)).o.Run(t.Context(), theKey, theOrder)
		require.Empty(t, sagaError(t, err, saga.ErrFailed).NotUndone)
		require.Equal(t, []string{"s1", "undo s1 known"}, o.p.seen())
		require.Equal(t, "COMPENSATED SKIPPED PENDING", stepStatuses(recordOf(t, store, theKey, "chain")))
	})
}

// A When is no step: it has nothing to say to the outside.
func TestAWhenThatEmitsFailsTheRun(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		d := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
			if i == 1 {
				s.When(func(r *orderRun) bool { r.Emit(outbox.Message{Topic: "t", Body: "b"}); return true })
			}
		}}.of(2)
		_, err := newProcess(t, world, store, d).o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "s2", sagaError(t, err, saga.ErrFailed).Step)
		require.ErrorIs(t, err, outbox.ErrInvalidMessage)
		require.Empty(t, recordOf(t, store, theKey, "chain").Outbox.Messages)
	})
}

// The result of a run whose When turned a cancel aside: a request that comes with the write that skips the rest turns the
// run round, skipped steps and all.
func TestACancelComesBeforeTheCompletionThatSkipsTheRest(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		o, store := newOptional(map[string]bool{"s2": false}), open()
		a := newProcess(t, world, store, o.chain().of(2))
		a.net.On(sagatest.Becomes(state.StatusCompleted), sagatest.Before(func() {
			require.NoError(t, store.RequestCancel(t.Context(), "t#chain#1", state.CancelRequest{Reason: "no"}))
		}))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, saga.CodeCancelled, sagaError(t, err, saga.ErrFailed).Code)
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, "COMPENSATED SKIPPED", stepStatuses(rec))
		require.Nil(t, rec.Response)
	})
}

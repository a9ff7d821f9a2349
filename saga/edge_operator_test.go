package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// verbs are all that a person may do to a blocked run, on an orchestrator and on an operator.
type verbs interface {
	Retry(ctx context.Context, key saga.Key, note string) error
	MarkDone(ctx context.Context, key saga.Key, step string, result any, note string) error
	MarkCompensated(ctx context.Context, key saga.Key, step, note string) error
	ForceCompensate(ctx context.Context, key saga.Key, note string) error
}

var (
	_ verbs = (*saga.Operator)(nil)
	_ verbs = (*saga.Orchestrator[order, []string])(nil)
)

var eachVerb = map[string]func(ctx context.Context, v verbs, key saga.Key, step string) error{
	"retry": func(ctx context.Context, v verbs, key saga.Key, _ string) error { return v.Retry(ctx, key, "note") },
	"mark_done": func(ctx context.Context, v verbs, key saga.Key, step string) error {
		return v.MarkDone(ctx, key, step, voucher{"by hand"}, "note")
	},
	"mark_compensated": func(ctx context.Context, v verbs, key saga.Key, step string) error {
		return v.MarkCompensated(ctx, key, step, "note")
	},
	"force_compensate": func(ctx context.Context, v verbs, key saga.Key, _ string) error {
		return v.ForceCompensate(ctx, key, "note")
	},
}

// fullKey is theKey as someone names it who has no definition.
func fullKey(operation string) saga.Key {
	return saga.Key{Tenant: theKey.Tenant, Operation: operation, ID: theKey.ID}
}

// bringTo leads theKey's run of a chain of two to a status; COMPENSATING and IN_PROGRESS ones are nobody's, their lease
// lapsed or laid down. "backwards" and "forwards" are BLOCKED.
func bringTo(t *testing.T, world *clock.Fake, store state.Store, where string) {
	t.Helper()
	c := chain{p: new(participant)}
	declare := func(int, *steps.Step[order, voucher]) {}
	a := &process[order, []string]{}
	switch where {
	case "IN_PROGRESS":
		c.after = at("s2", func(context.Context, *orderRun) error { a.net.Die(); return nil })
	case "INTERRUPTED":
		c.after = at("s2", failing(errBusy))
	case "COMPENSATING":
		c.before, c.beforeUndo = at("s2", failing(steps.Permanent(errRefuse))), failing(errBusy)
	case "FAILED":
		c.before = at("s2", failing(steps.Permanent(errRefuse)))
	case "backwards":
		c.before, c.beforeUndo = at("s2", failing(steps.Permanent(errRefuse))), failing(steps.Permanent(errBusy))
	case "forwards":
		c.after = at("s2", failing(errBusy))
		declare = func(i int, s *steps.Step[order, voucher]) {
			if i == 1 {
				s.Pivot().MaxAttempts(1)
			}
		}
	}
	c.declare = declare
	*a = *newProcess(t, world, store, c.of(2))
	_, _ = a.o.Run(t.Context(), theKey, theOrder)
	if where == "REVERSED" {
		require.NoError(t, a.o.Reverse(t.Context(), theKey, "returned"))
	}
	want := state.Status(where)
	if where == "backwards" || where == "forwards" {
		want = state.StatusBlocked
	}
	require.Equal(t, want, recordOf(t, store, theKey, "chain").Status)
}

// Each verb in every status: on BLOCKED those that lead out of it, and nothing anywhere else. What is refused leaves no
// trace.
func TestEveryVerbInEveryStatus(t *testing.T) {
	allowed := map[string]map[string]string{ // by where and verb: the step that it is said of
		"forwards":  {"retry": "s2", "mark_done": "s2", "force_compensate": "s2"},
		"backwards": {"retry": "s1", "mark_compensated": "s1"},
	}
	for _, where := range []string{"IN_PROGRESS", "INTERRUPTED", "COMPENSATING", "COMPLETED", "FAILED", "REVERSED", "forwards", "backwards"} {
		for verb, do := range eachVerb {
			for _, who := range []string{"operator", "orchestrator"} {
				t.Run(where+" "+verb+" "+who, func(t *testing.T) {
					eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
						store := open()
						bringTo(t, world, store, where)
						var v verbs = saga.NewOperator(store)
						if who == "orchestrator" {
							v = newProcess(t, world, store, chain{p: new(participant)}.of(2)).o
						}
						ctx := saga.ActorContext(t.Context(), "ann")
						before := recordOf(t, store, theKey, "chain")
						for _, step := range []string{"s1", "s2", "s3", ""} {
							said, ok := allowed[where][verb]
							if ok && (said == step || verb == "retry" || verb == "force_compensate") {
								continue
							}
							sagaError(t, do(ctx, v, fullKey("chain"), step), saga.ErrNotAllowed)
						}
						require.Equal(t, before, recordOf(t, store, theKey, "chain"))
						said, ok := allowed[where][verb]
						if !ok {
							return
						}
						require.NoError(t, do(ctx, v, fullKey("chain"), said))
						rec := recordOf(t, store, theKey, "chain")
						require.Len(t, rec.Audit, 1)
						line := rec.Audit[0]
						require.Equal(t, state.AuditEntry{At: line.At, Actor: "ann", Verb: verb, Step: said, Note: "note"}, line)
						require.False(t, line.At.IsZero())
						require.Equal(t, before.Revision+1, rec.Revision)
						require.Empty(t, rec.Owner)
						require.Equal(t, before.Runs, rec.Runs)
					})
				})
			}
		}
	}
}

// The answer to a verb is lost: sent again, it is known again, also when recovery has taken the run up in between. It is
// done once.
func TestALostAnswerToAVerb(t *testing.T) {
	for where, verbNames := range map[string][]string{"forwards": {"retry", "mark_done", "force_compensate"}, "backwards": {"retry", "mark_compensated"}} {
		for _, verb := range verbNames {
			for _, taken := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, taken up in between: %v", where, verb, taken), func(t *testing.T) {
					eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
						store := open()
						bringTo(t, world, store, where)
						net := sagatest.NewFaultyStore(store)
						net.On(sagatest.Method("Commit"), func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
							err := send(ctx)
							if taken {
								busy := newProcess(t, world, store, chain{p: new(participant), before: failing(errBusy), beforeUndo: failing(errBusy), declare: func(i int, s *steps.Step[order, voucher]) {
									if where == "forwards" && i == 1 {
										s.Pivot()
									}
								}}.of(2))
								_, _ = busy.o.Resume(t.Context(), theKey)
							}
							require.NoError(t, err)
							return sagatest.ErrNoAnswer
						})
						step := map[string]string{"forwards": "s2", "backwards": "s1"}[where]
						require.NoError(t, eachVerb[verb](saga.ActorContext(t.Context(), "ann"), saga.NewOperator(net), fullKey("chain"), step))
						rec := recordOf(t, store, theKey, "chain")
						require.Len(t, rec.Audit, 1)
						require.Equal(t, taken, rec.Runs > 1)
					})
				})
			}
		}
	}
}

// What comes between the look and the write makes a person look again.
func TestAVerbIsConditionalOnWhatWasSeen(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		bringTo(t, world, store, "forwards")
		net := sagatest.NewFaultyStore(store)
		net.On(sagatest.Method("Commit"), sagatest.Before(func() {
			require.NoError(t, saga.NewOperator(store).Retry(saga.ActorContext(t.Context(), "bob"), fullKey("chain"), "me first"))
		}))
		err := saga.NewOperator(net).ForceCompensate(saga.ActorContext(t.Context(), "ann"), fullKey("chain"), "enough")
		require.ErrorContains(t, sagaError(t, err, saga.ErrNotAllowed), "look again")
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusInterrupted, rec.Status)
		require.Len(t, rec.Audit, 1)
		require.Equal(t, "bob", rec.Audit[0].Actor)
	})
}

func TestWhatAnOperatorHears(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		down := errors.New("down")
		net := sagatest.NewFaultyStore(store)
		op := saga.NewOperator(net)
		for verb, do := range eachVerb {
			sagaError(t, do(t.Context(), op, saga.Key{Operation: "chain", ID: "nobody"}, "s1"), saga.ErrNotFound)
			sagaError(t, do(t.Context(), op, saga.Key{ID: "1"}, "s1"), saga.ErrInvalidKey)
			sagaError(t, do(t.Context(), op, saga.Key{Operation: "chain"}, "s1"), saga.ErrInvalidKey)
			net.On(sagatest.Method("Get"), sagatest.Fail(down))
			require.ErrorIs(t, sagaError(t, do(t.Context(), op, fullKey("chain"), "s1"), saga.ErrStore), down, verb)
		}
		sagaError(t, op.Cancel(t.Context(), saga.Key{Operation: "chain", ID: "nobody"}, "no"), saga.ErrNotFound)
		_, err := op.Get(t.Context(), saga.Key{Operation: "chain", ID: "nobody"})
		sagaError(t, err, saga.ErrNotFound)

		bringTo(t, world, store, "forwards")
		before := recordOf(t, store, theKey, "chain")
		sagaError(t, op.MarkDone(t.Context(), fullKey("chain"), "s2", make(chan int), ""), saga.ErrInvalidInput)
		net.Always(sagatest.Method("Commit"), sagatest.Fail(down))
		require.ErrorIs(t, sagaError(t, op.Retry(t.Context(), fullKey("chain"), "up"), saga.ErrStore), down)
		net.Clear()
		require.Equal(t, before, recordOf(t, store, theKey, "chain"))

		require.NoError(t, op.Retry(t.Context(), fullKey("chain"), strings.Repeat("長", 200)))
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, "unknown", rec.Audit[0].Actor)
		require.Equal(t, strings.Repeat("長", 85), rec.Audit[0].Note, "cut at 256 bytes, at the end of a character")
	})
}

// A step without a result is marked done with nil, and one whose result may be nil as well; anything else of the wrong
// type is refused.
func TestTheResultThatAPersonGives(t *testing.T) {
	type thing struct{ N int }
	broken := func(declared func(err error) steps.Declared[order]) (*saga.Definition[order, steps.None], *saga.Definition[order, steps.None]) {
		return saga.Define("hand", saga.NoResult[order], declared(errBusy)), saga.Define("hand", saga.NoResult[order], declared(nil))
	}
	for name, c := range map[string]struct {
		step     func(err error) steps.Declared[order]
		good     []any
		bad      []any
		recorded string
	}{
		"none": {func(err error) steps.Declared[order] {
			return steps.Do("s", func(context.Context, *orderRun) error { return err }).AtMostOnce()
		}, []any{nil, steps.None{}}, []any{1, "x"}, "null"},
		"a struct": {func(err error) steps.Declared[order] {
			return steps.New("s", func(context.Context, *orderRun) (thing, error) { return thing{}, err }).AtMostOnce()
		}, []any{thing{7}}, []any{nil, 7, &thing{7}, map[string]int{"N": 7}}, `{"N":7}`},
		"a pointer": {func(err error) steps.Declared[order] {
			return steps.New("s", func(context.Context, *orderRun) (*thing, error) { return nil, err }).AtMostOnce()
		}, []any{&thing{7}}, []any{thing{7}, "x"}, `{"N":7}`},
		"no pointer": {func(err error) steps.Declared[order] {
			return steps.New("s", func(context.Context, *orderRun) (*thing, error) { return nil, err }).AtMostOnce()
		}, []any{(*thing)(nil), nil}, nil, `null`},
		"an interface": {func(err error) steps.Declared[order] {
			return steps.New("s", func(context.Context, *orderRun) (any, error) { return nil, err }).AtMostOnce()
		}, []any{7}, []any{make(chan int)}, `7`},
	} {
		for i := range c.good {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					store := open()
					d, mended := broken(c.step)
					_, err := newProcess(t, world, store, d).o.Run(t.Context(), theKey, theOrder)
					sagaError(t, err, saga.ErrBlocked)
					o := newProcess(t, world, store, mended).o
					for _, bad := range c.bad {
						sagaError(t, o.MarkDone(t.Context(), theKey, "s", bad, ""), saga.ErrInvalidInput)
					}
					require.NoError(t, o.MarkDone(t.Context(), theKey, "s", c.good[i], ""))
					require.JSONEq(t, c.recorded, string(recordOf(t, store, theKey, "hand").Steps[0].Output))
					_, err = o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
				})
			})
		}
	}
}

// Marking steps undone, in any order, until nothing is left: the run ends by whoever takes it up.
func TestMarkingEverythingUndone(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		d := chain{p: p, before: at("s4", failing(steps.Permanent(errRefuse))), beforeUndo: failing(steps.Permanent(errBusy))}.of(4)
		a := newProcess(t, world, store, d)
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "s3", sagaError(t, err, saga.ErrBlocked).Step)
		op := saga.NewOperator(store)
		for _, step := range []string{"s1", "s3", "s2"} {
			require.NoError(t, op.MarkCompensated(t.Context(), fullKey("chain"), step, "by hand"))
			if step == "s2" {
				break
			}
			require.Equal(t, state.StatusCompensating, recordOf(t, store, theKey, "chain").Status)
			_, err = a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrBlocked)
		}
		got, err := saga.Recover(t.Context(), a.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Failed: 1}, got)
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusFailed, rec.Status)
		require.Empty(t, rec.Failure.NotUndone)
		require.Equal(t, errRefuse.Error(), rec.Failure.Message, "why it went backwards, not what blocked it")
		require.Equal(t, []string{"s1", "s2", "s3"}, p.seen())
	})
}

func TestAnOperatorListsRunsPageByPage(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		a := newProcess(t, world, store, chain{p: new(participant), after: at("s1", failing(errBusy))}.of(1))
		for i := range 25 {
			_, err := a.o.Run(t.Context(), saga.Key{ID: fmt.Sprint(i)}, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		}
		net := sagatest.NewFaultyStore(store)
		op := saga.NewOperator(net)
		seen := map[string]bool{}
		for rec, err := range op.Runs(t.Context(), state.Query{Statuses: []state.Status{state.StatusInterrupted}, Limit: 10}) {
			require.NoError(t, err)
			seen[rec.Key] = true
		}
		require.Len(t, seen, 25)
		require.GreaterOrEqual(t, len(net.Calls(sagatest.Method("List"))), 3)
		for _, err := range op.Runs(t.Context(), state.Query{}) {
			require.NoError(t, err)
			break // stops asking
		}
		down := errors.New("down")
		net.On(sagatest.Nth("List", len(net.Calls(sagatest.Method("List")))+2), sagatest.Fail(down))
		var errs []error
		rows := 0
		for rec, err := range op.Runs(t.Context(), state.Query{Limit: 10}) {
			if err != nil {
				require.Nil(t, rec)
				errs = append(errs, err)
				continue
			}
			rows++
		}
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], down)
		require.Equal(t, 10, rows)
	})
}

// Who forgets the store hears so from the first method that is called, and nothing panics.
func TestOperatorWithoutAStore(t *testing.T) {
	var nobody *memory.Store
	for name, store := range map[string]state.Store{"nil": nil, "a nil pointer": nobody} {
		t.Run(name, func(t *testing.T) {
			o := saga.NewOperator(store)
			key := fullKey("create_order")
			said := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, saga.ErrStore)
				require.ErrorContains(t, err, "the store given to NewOperator is nil")
			}
			_, err := o.Get(t.Context(), key)
			said(err)
			said(o.Cancel(t.Context(), key, "reason"))
			for _, verb := range eachVerb {
				said(verb(t.Context(), o, key, "s1"))
			}
			listed := 0
			for rec, err := range o.Runs(t.Context(), state.Query{}) {
				require.Nil(t, rec)
				said(err)
				listed++
			}
			require.Equal(t, 1, listed)
		})
	}
}

// After a person's word the run says what is to be undone next: as far as an operator can know it, who has no definition, and
// exactly once it is taken up.
func TestTheCurrentStepAfterAPersonsWord(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		no := errors.New("no")
		var seen []string
		store := open()
		step := func(name string, fails error) *steps.Step[order, steps.None] {
			return steps.Do(name, func(context.Context, *orderRun) error { return fails }).
				Compensate(func(ctx context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
					seen = append(seen, name+" at "+recordOf(t, store, theKey, "op").CurrentStep)
					return no
				})
		}
		kept := steps.Do("kept", func(context.Context, *orderRun) error { return nil }).NoCompensation()
		o := newSaga(t, saga.Define("op", saga.NoResult[order], step("a", nil), kept, step("b", nil), step("c", nil).Pivot(), step("d", steps.Permanent(errors.New("no")))), store)
		no = steps.Permanent(no)
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrBlocked)
		require.NoError(t, o.ForceCompensate(t.Context(), theKey, "back"))
		require.Equal(t, "c", recordOf(t, store, theKey, "op").CurrentStep, "d had no effect")
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrBlocked)
		require.NoError(t, o.MarkCompensated(t.Context(), theKey, "c", "by hand"))
		require.Equal(t, "b", recordOf(t, store, theKey, "op").CurrentStep)
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrBlocked)
		require.NoError(t, o.MarkCompensated(t.Context(), theKey, "b", "by hand"))
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "a", sagaError(t, err, saga.ErrBlocked).Step)
		require.Equal(t, []string{"c at c", "b at b", "a at a"}, seen)
	})
}

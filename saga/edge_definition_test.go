package saga_test

import (
	"context"
	"errors"
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

// list is a saga of the named steps, all of which call one participant. "!" behind a name makes it the pivot, and "?" a
// step whose When says no.
type list struct {
	p *participant
	// fails are the errors of the steps.
	fails map[string]error
	// undo is the error of every compensation.
	undo error
	// result is the error of the result function.
	result error
}

func (l list) of(names string) *saga.Definition[order, string] {
	var declared []steps.Declared[order]
	for _, name := range strings.Fields(names) {
		plain := strings.TrimRight(name, "!?")
		s := steps.New(plain, func(_ context.Context, r *orderRun) (voucher, error) {
			return l.p.do(plain, r.IdempotencyKey()), l.fails[plain]
		}).Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[voucher]) error {
			l.p.undo(plain, did.Known, r.IdempotencyKey())
			return l.undo
		}).Retry(once).CompensateRetry(once)
		switch {
		case strings.HasSuffix(name, "!"):
			s.Pivot()
		case strings.HasSuffix(name, "?"):
			s.When(func(*orderRun) bool { return false })
		}
		declared = append(declared, s)
	}
	return saga.Define("list", func(context.Context, *orderRun) (string, error) { return names, l.result }, declared...)
}

var errBusy = errors.New("busy")

func busyAt(p *participant, step string) list {
	return list{p: p, fails: map[string]error{step: errBusy}}
}

func TestAppendedStepsAreTakenUp(t *testing.T) {
	for name, c := range map[string]struct {
		first list
		old   string
		now   string
		plan  []string
		pivot string
		steps string
		calls []string
	}{
		"behind the step at hand": {busyAt(nil, "b"), "a b", "a b c", []string{"a", "b", "c"}, "", "DONE DONE DONE", []string{"a", "b", "b", "c"}},
		"where all was done":      {list{result: errBusy}, "a b", "a b c", []string{"a", "b", "c"}, "", "DONE DONE DONE", []string{"a", "b", "c"}},
		"a pivot":                 {busyAt(nil, "b"), "a b", "a b c!", []string{"a", "b", "c"}, "c", "DONE DONE DONE", []string{"a", "b", "b", "c"}},
		"behind a pivot":          {busyAt(nil, "b"), "a b!", "a b! c d", []string{"a", "b", "c", "d"}, "b", "DONE DONE DONE DONE", []string{"a", "b", "b", "c", "d"}},
		"one that is skipped":     {list{result: errBusy}, "a b", "a b c? d", []string{"a", "b", "c", "d"}, "", "DONE DONE SKIPPED DONE", []string{"a", "b", "d"}},
		"only skipped ones":       {list{result: errBusy}, "a b", "a b c? d?", []string{"a", "b", "c", "d"}, "", "DONE DONE SKIPPED SKIPPED", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				first := c.first
				first.p = p
				_, err := newProcess(t, world, store, first.of(c.old)).o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				out, err := newProcess(t, world, store, list{p: p}.of(c.now)).o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, c.now, out)
				require.Equal(t, c.calls, p.seen())
				rec := recordOf(t, store, theKey, "list")
				require.Equal(t, c.plan, rec.Plan)
				require.Equal(t, c.pivot, rec.Pivot)
				require.Equal(t, c.steps, stepStatuses(rec))
			})
		})
	}
}

// The take-up that appends stores the new plan, and says which step comes next.
func TestATakeUpThatAppendsStoresThePlan(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		_, err := newProcess(t, world, store, list{p: p, result: errBusy}.of("a b")).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.Empty(t, recordOf(t, store, theKey, "list").CurrentStep)
		b := newProcess(t, world, store, list{p: p}.of("a b c? d!"))
		b.net.On(sagatest.TakesUp, sagatest.After(b.net.Die))
		_, err = b.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)
		rec := recordOf(t, store, theKey, "list")
		require.Equal(t, []string{"a", "b", "c", "d"}, rec.Plan)
		require.Equal(t, "DONE DONE SKIPPED PENDING", stepStatuses(rec))
		require.Equal(t, "d", rec.CurrentStep)

		// An older worker knows nothing of the new steps, and leaves the run alone.
		old := newProcess(t, world, store, list{p: p}.of("a b"))
		old.clk.Advance(theLease)
		for _, err := range []error{
			second(old.o.Run(t.Context(), theKey, theOrder)),
			second(old.o.Resume(t.Context(), theKey)),
		} {
			require.ErrorContains(t, sagaError(t, err, saga.ErrDefinitionChanged), `step 3 "c"`)
		}
		got, err := saga.Recover(t.Context(), old.o)
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Interrupted: 1}, got)
		require.Equal(t, rec, recordOf(t, store, theKey, "list"))

		// A cancel reaches it all the same: the request is stored, and obeyed by one that knows.
		require.NoError(t, old.o.Cancel(t.Context(), theKey, "no"))
		require.Equal(t, state.StatusInProgress, recordOf(t, store, theKey, "list").Status)
	})
}

func second[T any](_ T, err error) error { return err }

// Every other change is refused, and the first difference is named; nothing is written, and what is ended answers.
func TestAChangedPlanIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, now, says string }{
		"renamed":               {"a b c", "a x c", `step 2 was "b" and is declared as "x"`},
		"removed from the end":  {"a b c", "a b", `step 3 "c"`},
		"removed from between":  {"a b c", "a c", `step 2 was "b"`},
		"put in between":        {"a b", "a x b", `step 2 was "b" and is declared as "x"`},
		"reordered":             {"a b c", "a c b", `step 2 was "b" and is declared as "c"`},
		"put before":            {"a b", "x a b", `step 1 was "a"`},
		"case":                  {"a b", "a B", `step 2 was "b" and is declared as "B"`},
		"a pivot more":          {"a b", "a b!", `the pivot was "" and is declared as "b"`},
		"a pivot less":          {"a b!", "a b", `the pivot was "b" and is declared as ""`},
		"a pivot moved":         {"a b! c", "a b c!", `the pivot was "b" and is declared as "c"`},
		"a pivot moved outside": {"a b!", "a b c!", `the pivot was "b" and is declared as "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				store := open()
				other := newProcess(t, world, store, list{p: new(participant)}.of(c.now))
				for status, l := range map[state.Status]list{
					state.StatusInterrupted:  {fails: map[string]error{"a": errBusy}},
					state.StatusCompensating: {fails: map[string]error{"b": steps.Permanent(errRefuse)}, undo: errBusy},
					state.StatusCompleted:    {},
				} {
					key := saga.Key{Tenant: "t", ID: string(status)}
					l.p = new(participant)
					out, err := newProcess(t, world, store, l.of(c.old)).o.Run(t.Context(), key, theOrder)
					before := recordOf(t, store, key, "list")
					require.Equal(t, status, before.Status, "%v", err)
					again, err := other.o.Run(t.Context(), key, theOrder)
					if status == state.StatusCompleted {
						require.NoError(t, err)
						require.Equal(t, out, again)
						require.ErrorContains(t, sagaError(t, other.o.Reverse(t.Context(), key, "no"), saga.ErrDefinitionChanged), c.says)
					} else {
						require.ErrorContains(t, sagaError(t, err, saga.ErrDefinitionChanged), c.says)
						require.ErrorContains(t, err, "Previous", "what to do")
					}
					require.Equal(t, before, recordOf(t, store, key, "list"))
				}
			})
		})
	}
}

// What a lease or another payload has to say comes first.
func TestAChangedPlanIsNotTheFirstThingSaid(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		at := newStop(t)
		a := newProcess(t, world, store, chain{p: new(participant), before: at.hook}.of(1))
		got := goRun(t.Context(), a.o)
		within(t, at.reached)
		b := newProcess(t, world, store, chain{p: new(participant)}.of(2).Version(2))
		_, err := b.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInProgress)
		_, err = b.o.Run(t.Context(), theKey, order{"another", 1})
		sagaError(t, err, saga.ErrPayloadMismatch)
		at.release()
		require.NoError(t, within(t, got).err)
	})
}

func byNumber(o order) any { return o.No }

// A run of another version is continued, and its payload hashed, by the declaration given with Previous.
func TestPreviousContinuesRunsOfItsVersion(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		old := func(l list) *saga.Definition[order, string] { return l.of("a b c").Version(1).Fingerprint(byNumber) }
		_, err := newProcess(t, world, store, old(busyAt(p, "b"))).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)

		alone := newProcess(t, world, store, list{p: p}.of("x y").Version(2).Fingerprint(byNumber))
		_, err = alone.o.Run(t.Context(), theKey, theOrder)
		require.ErrorContains(t, sagaError(t, err, saga.ErrDefinitionChanged), "version 1")
		before := recordOf(t, store, theKey, "list")

		whole := newProcess(t, world, store, list{p: p}.of("x y").Version(2).Previous(old(list{p: p}), list{p: p}.of("a z").Version(0)))
		_, err = whole.o.Run(t.Context(), theKey, order{"another", theOrder.Amount})
		sagaError(t, err, saga.ErrPayloadMismatch)
		require.Equal(t, before, recordOf(t, store, theKey, "list"))
		out, err := whole.o.Run(t.Context(), theKey, order{theOrder.No, 99}) // to version 1 the number alone counts
		require.NoError(t, err)
		require.Equal(t, "a b c", out)
		require.Equal(t, []string{"a", "b", "b", "c"}, p.seen())
		rec := recordOf(t, store, theKey, "list")
		require.Equal(t, 1, rec.Version)
		require.Equal(t, []string{"a", "b", "c"}, rec.Plan)

		// It is ended: everybody answers for it.
		out, err = alone.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, "a b c", out)

		// A new run is of the new version, for which all of the input counts.
		key := saga.Key{Tenant: "t", ID: "2"}
		out, err = whole.o.Run(t.Context(), key, theOrder)
		require.NoError(t, err)
		require.Equal(t, "x y", out)
		require.Equal(t, 2, recordOf(t, store, key, "list").Version)
		_, err = whole.o.Run(t.Context(), key, order{theOrder.No, 99})
		sagaError(t, err, saga.ErrPayloadMismatch)
		require.NoError(t, whole.o.Reverse(t.Context(), theKey, "an old one"))
		require.Equal(t, []string{"undo c known", "undo b known", "undo a known"}, p.seen()[6:])
	})
}

// What an operator says of a step is checked against the version that the run is of.
func TestAResultByHandIsOfTheRunsVersion(t *testing.T) {
	number := func(err error) *saga.Definition[order, int] {
		s := steps.New("only", func(context.Context, *orderRun) (int, error) { return 1, err }).Pivot()
		return saga.Define("typed", func(_ context.Context, r *orderRun) (int, error) { return s.Output(r), nil }, s).Version(1)
	}
	word := steps.New("only", func(context.Context, *orderRun) (string, error) { return "one", nil })
	now := func() *saga.Definition[order, int] {
		return saga.Define("typed", func(_ context.Context, r *orderRun) (int, error) { return len(word.Output(r)), nil }, word).Version(2)
	}
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		for i, key := range []saga.Key{{ID: "1"}, {ID: "2"}} {
			a := newProcess(t, world, store, saga.Define("typed", saga.NoResult[order],
				steps.New("only", func(context.Context, *orderRun) (int, error) { return 0, errBusy }).AtMostOnce()).Version(1+i))
			_, err := a.o.Run(t.Context(), key, theOrder)
			sagaError(t, err, saga.ErrBlocked)
		}
		b := newProcess(t, world, store, now().Previous(number(nil)))
		require.ErrorContains(t, sagaError(t, b.o.MarkDone(t.Context(), saga.Key{ID: "1"}, "only", "seven", ""), saga.ErrInvalidInput), "int")
		require.NoError(t, b.o.MarkDone(t.Context(), saga.Key{ID: "1"}, "only", 7, ""))
		require.ErrorContains(t, sagaError(t, b.o.MarkDone(t.Context(), saga.Key{ID: "2"}, "only", 7, ""), saga.ErrInvalidInput), "string")
		require.NoError(t, b.o.MarkDone(t.Context(), saga.Key{ID: "2"}, "only", "seven", ""))
		sagaError(t, b.o.MarkDone(t.Context(), saga.Key{ID: "3"}, "only", "seven", ""), saga.ErrNotFound)
	})
}

func TestPreviousIsChecked(t *testing.T) {
	l := list{p: new(participant)}
	foreign := saga.Define("foreign", func(context.Context, *orderRun) (string, error) { return "", nil }, steps.Do("a", func(context.Context, *orderRun) error { return nil }))
	for says, d := range map[string]*saga.Definition[order, string]{
		"given twice":   l.of("a").Version(2).Previous(l.of("a").Version(1), l.of("b").Version(1)),
		"version 2":     l.of("a").Version(2).Previous(l.of("b").Version(2)),
		"nil":           l.of("a").Version(2).Previous(nil),
		"foreign":       l.of("a").Version(2).Previous(foreign),
		"stands twice":  l.of("a").Version(2).Previous(l.of("a a").Version(1)),
		"has no step":   l.of("a").Version(2).Previous(l.of("").Version(1)),
		"Version(-1)":   l.of("a").Version(-1),
		"second pivot":  l.of("a! b!"),
		"a pivot can't": saga.Define("x", func(context.Context, *orderRun) (string, error) { return "", nil }, steps.Do("p", func(context.Context, *orderRun) error { return nil }).Pivot().When(func(*orderRun) bool { return true })),
	} {
		_, err := saga.New(d, sagatest.NewFaultyStore(nil))
		require.ErrorIs(t, err, saga.ErrInvalidDefinition)
		require.ErrorContains(t, err, says)
	}
}

func TestAStoreThatIsNilIsRefused(t *testing.T) {
	for name, store := range map[string]state.Store{"nil": nil, "a nil pointer": (*memory.Store)(nil)} {
		_, err := saga.New(list{p: new(participant)}.of("a"), store)
		require.ErrorIs(t, err, saga.ErrInvalidDefinition, name)
		require.ErrorContains(t, err, "the store is nil", name)
	}
}

func TestAllWrongOptionsAreNamed(t *testing.T) {
	_, err := saga.New(saga.Once("one", func(context.Context, *steps.Run[int]) (int, error) { return 0, nil }), memory.New(),
		saga.WithLease(-1), saga.WithMargin(-1), saga.WithRecoverers(0))
	require.ErrorIs(t, err, saga.ErrInvalidDefinition)
	for _, name := range []string{"WithLease", "WithMargin", "WithRecoverers"} {
		require.ErrorContains(t, err, name)
	}
}

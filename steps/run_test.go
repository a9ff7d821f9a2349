package steps_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// theCall is a call of step s of a run.
func theCall(phase drive.Phase) *drive.Call {
	key := state.Key{Tenant: "t", Operation: "op", ID: "1"}
	return &drive.Call{
		Key: key, RunKey: key.String(), Step: "s", Phase: phase, Attempt: 3, Resumed: true,
		Input: json.RawMessage(`{"no":"1","tags":["a","b"]}`), Cause: errBase,
	}
}

func TestWhatARunTells(t *testing.T) {
	t.Parallel()
	for phase, key := range map[drive.Phase]string{
		drive.Do: "t#op#1/s", drive.Probe: "t#op#1/s", drive.Undo: "t#op#1/s/compensate", drive.When: "t#op#1/s",
	} {
		r, err := steps.NewRun[order](theCall(phase))
		require.NoError(t, err)
		require.Equal(t, state.Key{Tenant: "t", Operation: "op", ID: "1"}, r.Key())
		require.Equal(t, "s", r.Step())
		require.Equal(t, key, r.IdempotencyKey(), "%s", phase)
		require.Equal(t, key, r.DerivedKey().String())
		require.Equal(t, key+"/x", r.Sub("x").String())
		require.Equal(t, 3, r.Attempt())
		require.True(t, r.Resumed())
		require.Equal(t, errBase, r.Cause())
		require.Equal(t, order{"1", []string{"a", "b"}}, r.Input)
	}
}

// The key is in the context of a step, of its compensation and of its probe, and nowhere else.
func TestTheKeyIsInTheContext(t *testing.T) {
	t.Parallel()
	type named struct{}
	got := map[string]string{}
	note := func(ctx context.Context, what string) {
		key, ok := steps.IdempotencyKey(context.WithValue(ctx, named{}, 1))
		require.True(t, ok, what)
		got[what] = key
	}
	s := steps.New("s", func(ctx context.Context, _ *orderRun) (int, error) { note(ctx, "do"); return 0, nil }).
		Compensate(func(ctx context.Context, _ *orderRun, _ steps.Outcome[int]) error { note(ctx, "undo"); return nil }).
		Probe(func(ctx context.Context, _ *orderRun) (int, bool, error) { note(ctx, "probe"); return 0, true, nil }).
		Snapshot()
	s.Do(t.Context(), theCall(drive.Do))
	s.Undo(t.Context(), theCall(drive.Undo), false, nil)
	s.Probe(t.Context(), theCall(drive.Probe))
	require.Equal(t, map[string]string{"do": "t#op#1/s", "undo": "t#op#1/s/compensate", "probe": "t#op#1/s"}, got)

	key, ok := steps.IdempotencyKey(t.Context())
	require.False(t, ok)
	require.Empty(t, key)
}

func TestEachCallHasItsOwnInput(t *testing.T) {
	t.Parallel()
	var seen []order
	s := steps.New("s", func(_ context.Context, r *orderRun) (int, error) {
		seen = append(seen, order{r.Input.No, append([]string(nil), r.Input.Tags...)})
		r.Input.No, r.Input.Tags[0] = "spoilt", "spoilt"
		return 0, nil
	}).Snapshot()
	c := theCall(drive.Do)
	for range 2 {
		require.NoError(t, s.Do(t.Context(), c).Err)
	}
	require.Equal(t, []order{{"1", []string{"a", "b"}}, {"1", []string{"a", "b"}}}, seen)
}

// Input that can't be decoded any more calls nothing, in whatever phase.
func TestInputThatCannotBeDecodedCallsNothing(t *testing.T) {
	t.Parallel()
	never := func() { t.Error("it was called") }
	s := steps.New("s", func(context.Context, *orderRun) (int, error) { never(); return 0, nil }).
		Compensate(func(context.Context, *orderRun, steps.Outcome[int]) error { never(); return nil }).
		Probe(func(context.Context, *orderRun) (int, bool, error) { never(); return 0, true, nil }).
		When(func(*orderRun) bool { never(); return true }).Snapshot()
	c := theCall(drive.Do)
	c.Input = json.RawMessage(`{"no":7}`)
	r := s.Do(t.Context(), c)
	require.True(t, r.NotCalled)
	require.ErrorIs(t, r.Err, state.ErrInvalidInput)
	r = s.Undo(t.Context(), c, false, nil)
	require.True(t, r.NotCalled)
	require.Error(t, r.Err)
	r, found := s.Probe(t.Context(), c)
	require.True(t, r.NotCalled)
	require.False(t, found)
	require.Error(t, r.Err)
	require.Panics(t, func() { s.When(c) })

	r = s.Undo(t.Context(), theCall(drive.Undo), true, json.RawMessage(`"no number"`))
	require.True(t, r.NotCalled, "nor does an output that can't be")
	require.Error(t, r.Err)
}

func TestAnOutcomeIsWhatIsKnown(t *testing.T) {
	t.Parallel()
	var got []steps.Outcome[int]
	s := newStep().Compensate(func(_ context.Context, _ *orderRun, did steps.Outcome[int]) error {
		got = append(got, did)
		return errBase
	}).Snapshot()
	require.Equal(t, errBase, s.Undo(t.Context(), theCall(drive.Undo), true, json.RawMessage("7")).Err)
	require.Equal(t, errBase, s.Undo(t.Context(), theCall(drive.Undo), false, json.RawMessage("7")).Err)
	require.Equal(t, []steps.Outcome[int]{{Known: true, Output: 7, Key: "t#op#1/s"}, {Key: "t#op#1/s"}}, got)
}

func TestResultsAreEncoded(t *testing.T) {
	t.Parallel()
	require.JSONEq(t, "7", string(newStep().Snapshot().Do(t.Context(), theCall(drive.Do)).Output))
	none := steps.Do("s", func(context.Context, *orderRun) error { return nil }).Snapshot()
	require.Equal(t, drive.Result{Output: json.RawMessage("null")}, none.Do(t.Context(), theCall(drive.Do)))
	bad := steps.New("s", func(context.Context, *orderRun) (any, error) { return make(chan int), nil }).Snapshot()
	r := bad.Do(t.Context(), theCall(drive.Do))
	require.NoError(t, r.Err, "the function has done what it should")
	require.ErrorIs(t, r.Unencodable, state.ErrInvalidInput)
	require.Nil(t, r.Output)
	failed := steps.New("s", func(context.Context, *orderRun) (int, error) { return 7, errBase }).Snapshot()
	require.Equal(t, drive.Result{Err: errBase}, failed.Do(t.Context(), theCall(drive.Do)), "a result beside an error is none")
}

func TestAProbesAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		out   int
		found bool
		err   error
		want  drive.Result
	}{
		"found":              {8, true, nil, drive.Result{Output: json.RawMessage("8")}},
		"not found":          {8, false, nil, drive.Result{}},
		"an error":           {8, false, errBase, drive.Result{Err: errBase}},
		"found and an error": {8, true, errBase, drive.Result{Err: errBase}},
	} {
		s := newStep().Probe(func(context.Context, *orderRun) (int, bool, error) { return tc.out, tc.found, tc.err }).Snapshot()
		got, found := s.Probe(t.Context(), theCall(drive.Probe))
		require.Equal(t, tc.want, got, name)
		require.Equal(t, tc.found && tc.err == nil, found, name)
	}
}

func TestAPersonsResultIsOfTheStepsType(t *testing.T) {
	t.Parallel()
	check := newStep().Snapshot().Check
	raw, err := check(9)
	require.NoError(t, err)
	require.JSONEq(t, "9", string(raw))
	for _, bad := range []any{nil, "9", int64(9), json.RawMessage("9")} {
		_, err := check(bad)
		require.ErrorIs(t, err, state.ErrInvalidInput, "%T", bad)
		require.ErrorContains(t, err, "step s")
	}
	raw, err = steps.Do("n", func(context.Context, *orderRun) error { return nil }).Snapshot().Check(steps.None{})
	require.NoError(t, err)
	require.Equal(t, "null", string(raw))
}

// given is a run in which the steps have these outputs, in this order.
func given(t *testing.T, outputs []json.RawMessage, declared ...any) *orderRun {
	t.Helper()
	c := theCall(drive.Do)
	c.Outputs, c.Index = outputs, map[any]int{}
	for i, s := range declared {
		c.Index[s] = i
	}
	r, err := steps.NewRun[order](c)
	require.NoError(t, err)
	return r
}

func TestOutputAndLookup(t *testing.T) {
	t.Parallel()
	tags := steps.New("tags", func(context.Context, *orderRun) ([]string, error) { return nil, nil })
	skipped, later, stranger, other := newStep(), newStep(), newStep(), steps.New("other", func(context.Context, *orderRun) (string, error) { return "", nil })
	r := given(t, []json.RawMessage{json.RawMessage(`["a","b"]`), nil, json.RawMessage(`{"not":"a string"}`)}, tags, skipped, other, later)

	got := tags.Output(r)
	require.Equal(t, []string{"a", "b"}, got)
	got[0] = "spoilt"
	require.Equal(t, []string{"a", "b"}, tags.Output(r), "decoded afresh at every call")
	got, ok := tags.Lookup(r)
	require.True(t, ok)
	require.Equal(t, []string{"a", "b"}, got)

	for name, tc := range map[string]struct {
		output func()
		lookup func() (any, bool)
		says   []string
	}{
		"skipped":   {func() { skipped.Output(r) }, func() (any, bool) { return skipped.Lookup(r) }, []string{"step s", "skipped"}},
		"later":     {func() { later.Output(r) }, func() (any, bool) { return later.Lookup(r) }, []string{"step s", "later"}},
		"elsewhere": {func() { stranger.Output(r) }, func() (any, bool) { return stranger.Lookup(r) }, []string{"step s", "not declared"}},
		"changed":   {func() { other.Output(r) }, func() (any, bool) { return other.Lookup(r) }, []string{"step other", "string"}},
	} {
		_, ok := tc.lookup()
		require.False(t, ok, name)
		func() {
			defer func() {
				missing, ok := recover().(*drive.NoOutput)
				require.True(t, ok, name)
				for _, says := range tc.says {
					require.Contains(t, missing.Error(), says, name)
				}
			}()
			tc.output()
		}()
	}
}

// Output's panic is a permanent failure of the step that asked.
func TestOutputsPanicIsAPermanentFailure(t *testing.T) {
	t.Parallel()
	later := newStep()
	calls := 0
	s := steps.Do("asks", func(_ context.Context, r *orderRun) error { calls++; later.Output(r); return nil })
	o, err := saga.New(saga.Define("op", saga.NoResult[order], s, later), memory.New())
	require.NoError(t, err)
	_, err = o.Run(t.Context(), saga.Key{ID: "1"}, order{})
	require.ErrorIs(t, err, saga.ErrFailed)
	require.ErrorContains(t, err, "it stands later in the definition")
	require.Equal(t, 1, calls)
	var e *saga.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "asks", e.Step)
}

// The twin is what a constructor makes that is called a second time for the result function.
func TestOutputTellsWhichMistakeItIs(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"a twin":     "no output of step first: another step of this name is declared, and this very one is not declared in this definition",
		"a stranger": "no output of step strange: it is not declared in this definition; add it to Define",
		"its own":    "no output of step asks: it stands later in the definition, or is the step at hand itself",
	} {
		step := func(name string) *steps.Step[order, steps.None] {
			return steps.Do(name, func(context.Context, *orderRun) error { return nil })
		}
		var asks *steps.Step[order, steps.None]
		asks = steps.Do("asks", func(_ context.Context, r *orderRun) error {
			map[string]*steps.Step[order, steps.None]{"a twin": step("first"), "a stranger": step("strange"), "its own": asks}[name].Output(r)
			return nil
		})
		o, err := saga.New(saga.Define("op", saga.NoResult[order], step("first"), asks), memory.New())
		require.NoError(t, err)
		_, err = o.Run(t.Context(), saga.Key{ID: "1"}, order{})
		require.ErrorIs(t, err, saga.ErrFailed, name)
		require.ErrorContains(t, err, says, name)
	}
}

// A run belongs to one attempt: what is emitted when that is over is dropped, and methods may be called concurrently.
func TestARunBelongsToOneAttempt(t *testing.T) {
	t.Parallel()
	c := theCall(drive.Do)
	r, err := steps.NewRun[order](c)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				r.Emit(outbox.Message{Topic: "t", Body: r.IdempotencyKey()})
			}
		})
	}
	wg.Wait()
	messages, bad := c.Close()
	require.NoError(t, bad)
	require.Len(t, messages, 40)
	ids := map[string]bool{}
	for _, m := range messages {
		ids[m.ID] = true
		assert.True(t, strings.HasPrefix(m.ID, "t#op#1/s/"), m.ID)
		assert.Equal(t, "t#op#1", m.Key, "the ordering key is the run's when there is none")
	}
	require.Len(t, ids, 40)
	r.Emit(outbox.Message{Topic: "late"})
	messages, bad = c.Close()
	require.NoError(t, bad)
	require.Len(t, messages, 40)
}

func TestAMessageThatCannotBeEmittedSpoilsTheAttempt(t *testing.T) {
	t.Parallel()
	emit := func(phase drive.Phase, f func(r *orderRun)) error {
		c := theCall(phase)
		r, err := steps.NewRun[order](c)
		require.NoError(t, err)
		f(r)
		_, bad := c.Close()
		return bad
	}
	fine := outbox.Message{Topic: "t", Body: "b"}
	for name, f := range map[string]func(r *orderRun){
		"a body that can't be encoded": func(r *orderRun) { r.Emit(outbox.Message{Topic: "t", Body: make(chan int)}) },
		"no topic":                     func(r *orderRun) { r.Emit(outbox.Message{Body: "b"}) },
		"too many": func(r *orderRun) {
			for range outbox.MaxMessages + 1 {
				r.Emit(fine)
			}
		},
		"too large":                  func(r *orderRun) { r.Emit(outbox.Message{Topic: "t", Body: make([]byte, outbox.MaxBytes+1)}) },
		"a good one after a bad one": func(r *orderRun) { r.Emit(outbox.Message{}); r.Emit(fine) },
	} {
		require.ErrorIs(t, emit(drive.Do, f), outbox.ErrInvalidMessage, name)
	}
	for _, phase := range []drive.Phase{drive.Do, drive.Undo, drive.Probe} {
		require.NoError(t, emit(phase, func(r *orderRun) { r.Emit(fine) }), "%s", phase)
	}
	for _, phase := range []drive.Phase{drive.When, drive.Output} {
		err := emit(phase, func(r *orderRun) { r.Emit(fine) })
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, "%s", phase)
		require.ErrorContains(t, err, string(phase))
	}
}

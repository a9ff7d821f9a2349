package steps_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

type order struct {
	No   string   `json:"no"`
	Tags []string `json:"tags,omitempty"`
}

type orderRun = steps.Run[order]

func do(context.Context, *orderRun) (int, error) { return 7, nil }

func undo(context.Context, *orderRun, steps.Outcome[int]) error { return nil }

func probe(context.Context, *orderRun) (int, bool, error) { return 8, true, nil }

func newStep() *steps.Step[order, int] { return steps.New("s", do) }

func TestEachDeclarationIsInTheSnapshot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		declare func(*steps.Step[order, int]) *steps.Step[order, int]
		check   func(t *testing.T, d drive.Step)
	}{
		"Compensate":     {func(s *steps.Step[order, int]) *steps.Step[order, int] { return s.Compensate(undo) }, func(t *testing.T, d drive.Step) { assert.NotNil(t, d.Undo); assert.True(t, d.Compensable()) }},
		"NoCompensation": {(*steps.Step[order, int]).NoCompensation, func(t *testing.T, d drive.Step) { assert.True(t, d.NothingToUndo); assert.True(t, d.Compensable()) }},
		"Retry": {
			func(s *steps.Step[order, int]) *steps.Step[order, int] {
				return s.Retry(steps.RetryPolicy{Initial: 1, Max: 2, Multiplier: 3, Jitter: 0.4, PerRun: 5})
			},
			func(t *testing.T, d drive.Step) {
				assert.Equal(t, drive.Policy{Initial: 1, Max: 2, Multiplier: 3, Jitter: 0.4, PerRun: 5}, d.Retry)
				assert.Zero(t, d.UndoRetry)
			},
		},
		"CompensateRetry": {
			func(s *steps.Step[order, int]) *steps.Step[order, int] {
				return s.CompensateRetry(steps.RetryPolicy{PerRun: 9})
			},
			func(t *testing.T, d drive.Step) {
				assert.Equal(t, drive.Policy{PerRun: 9}, d.UndoRetry)
				assert.Zero(t, d.Retry)
			},
		},
		"Timeout":     {func(s *steps.Step[order, int]) *steps.Step[order, int] { return s.Timeout(time.Minute) }, func(t *testing.T, d drive.Step) { assert.Equal(t, time.Minute, d.Timeout) }},
		"MaxAttempts": {func(s *steps.Step[order, int]) *steps.Step[order, int] { return s.MaxAttempts(4) }, func(t *testing.T, d drive.Step) { assert.Equal(t, 4, d.MaxAttempts) }},
		"Pivot":       {(*steps.Step[order, int]).Pivot, func(t *testing.T, d drive.Step) { assert.True(t, d.Pivot) }},
		"AtMostOnce":  {(*steps.Step[order, int]).AtMostOnce, func(t *testing.T, d drive.Step) { assert.True(t, d.AtMostOnce) }},
		"KeyValid":    {func(s *steps.Step[order, int]) *steps.Step[order, int] { return s.KeyValid(time.Hour) }, func(t *testing.T, d drive.Step) { assert.Equal(t, time.Hour, d.KeyValid) }},
		"When": {
			func(s *steps.Step[order, int]) *steps.Step[order, int] {
				return s.When(func(r *orderRun) bool { return r.Input.No == "yes" })
			},
			func(t *testing.T, d drive.Step) {
				assert.True(t, d.When(&drive.Call{Input: []byte(`{"no":"yes"}`)}))
				assert.False(t, d.When(&drive.Call{Input: []byte(`{"no":"no"}`)}))
			},
		},
		"Probe": {
			func(s *steps.Step[order, int]) *steps.Step[order, int] { return s.Probe(probe) },
			func(t *testing.T, d drive.Step) {
				r, found := d.Probe(t.Context(), &drive.Call{Input: []byte(`{}`)})
				assert.True(t, found)
				assert.JSONEq(t, "8", string(r.Output))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStep()
			require.Same(t, s, tc.declare(s), "it returns the step")
			d := s.Snapshot()
			require.Empty(t, d.Problems)
			tc.check(t, d)
			require.Same(t, s, d.Origin)
			require.Equal(t, "s", d.Name)
			require.Equal(t, "s", s.Name())
		})
	}
}

func TestAPlainStepDeclaresNothing(t *testing.T) {
	t.Parallel()
	d := newStep().Snapshot()
	require.Nil(t, d.Undo)
	require.Nil(t, d.Probe)
	require.Nil(t, d.When)
	require.False(t, d.Compensable())
	d.Do, d.Check, d.Origin = nil, nil, nil
	require.Equal(t, drive.Step{Name: "s"}, d)
}

// What is declared on a step later changes nothing in a definition made before.
func TestASnapshotStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := newStep()
	d := s.Snapshot()
	s.Compensate(undo).Probe(probe).When(func(*orderRun) bool { return false }).Timeout(1).MaxAttempts(1).Pivot().KeyValid(-1).Retry(steps.RetryPolicy{PerRun: -1})
	require.Nil(t, d.Undo)
	require.Nil(t, d.Probe)
	require.Nil(t, d.When)
	require.Zero(t, d.Timeout)
	require.Zero(t, d.MaxAttempts)
	require.False(t, d.Pivot)
	require.Empty(t, d.Problems)
	require.NotEmpty(t, s.Snapshot().Problems)

	before := newStep().Compensate(func(context.Context, *orderRun, steps.Outcome[int]) error { return errors.New("the first") })
	d = before.Snapshot()
	before.Compensate(func(context.Context, *orderRun, steps.Outcome[int]) error { return errors.New("the second") })
	require.EqualError(t, d.Undo(t.Context(), &drive.Call{Input: []byte(`{}`)}, false, nil).Err, "the first")
}

// saga.New says what is wrong, and names the step.
func TestNewRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	type S = *steps.Step[order, int]
	for name, tc := range map[string]struct {
		declared S
		says     string
	}{
		"no function":                   {steps.New[order, int]("s", nil), "its function is nil"},
		"Compensate(nil)":               {newStep().Compensate(nil), "Compensate(nil)"},
		"Compensate and NoCompensation": {newStep().Compensate(undo).NoCompensation(), "contradict"},
		"AtMostOnce and Retry":          {newStep().AtMostOnce().Retry(steps.RetryPolicy{}), "AtMostOnce and Retry"},
		"AtMostOnce and MaxAttempts":    {newStep().MaxAttempts(1).AtMostOnce(), "AtMostOnce and MaxAttempts"},
		"a pivot with a When":           {newStep().Pivot().When(func(*orderRun) bool { return true }), "pivot"},
		"When(nil)":                     {newStep().When(nil), "When(nil)"},
		"Probe(nil)":                    {newStep().Probe(nil), "Probe(nil)"},
		"Timeout(0)":                    {newStep().Timeout(0), "Timeout"},
		"Timeout(-1)":                   {newStep().Timeout(-1), "Timeout"},
		"KeyValid(0)":                   {newStep().KeyValid(0), "KeyValid"},
		"MaxAttempts(0)":                {newStep().MaxAttempts(0), "MaxAttempts"},
		"MaxAttempts(-1)":               {newStep().MaxAttempts(-1), "MaxAttempts"},
		"a bad Retry":                   {newStep().Retry(steps.RetryPolicy{PerRun: -1}), "negative PerRun"},
		"a bad CompensateRetry":         {newStep().CompensateRetry(steps.RetryPolicy{Multiplier: 0.5}), "Multiplier below 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fine := steps.New("fine", do).NoCompensation()
			_, err := saga.New(saga.Define("op", saga.NoResult[order], fine, tc.declared), memory.New())
			require.ErrorIs(t, err, saga.ErrInvalidDefinition)
			require.ErrorContains(t, err, "step s: ")
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), "step fine")
		})
	}
}

func TestNewRefusesStepsWithoutAFunction(t *testing.T) {
	t.Parallel()
	_, err := saga.New(saga.Define("op", saga.NoResult[order], steps.Do[order]("s", nil)), memory.New())
	require.ErrorIs(t, err, saga.ErrInvalidDefinition)
	require.ErrorContains(t, err, "step s: its function is nil")
}

func TestNewRefusesPlansThatCannotBe(t *testing.T) {
	t.Parallel()
	named := func(name string) *steps.Step[order, int] { return steps.New(name, do) }
	long := make([]byte, 65)
	for i := range long {
		long[i] = 'x'
	}
	for name, tc := range map[string]struct {
		declared []steps.Declared[order]
		says     []string
	}{
		"no step":           {nil, []string{"it has no step"}},
		"a nil step":        {[]steps.Declared[order]{named("a"), nil}, []string{"step 2 is nil"}},
		"a typed nil step":  {[]steps.Declared[order]{named("a"), (*steps.Step[order, int])(nil)}, []string{"step 2 is nil"}},
		"an empty name":     {[]steps.Declared[order]{named("")}, []string{"step 1", "the name"}},
		"a name too long":   {[]steps.Declared[order]{named(string(long))}, []string{"step 1", "the name"}},
		"a bad character":   {[]steps.Declared[order]{named("a/b")}, []string{"step 1", `"a/b"`}},
		"a letter abroad":   {[]steps.Declared[order]{named("größe")}, []string{"the name"}},
		"a name twice":      {[]steps.Declared[order]{named("a"), named("b"), named("a")}, []string{"step a: the name stands twice"}},
		"the same step":     {twice(named("a")), []string{"step a: the name stands twice"}},
		"two pivots":        {[]steps.Declared[order]{named("a").Pivot(), named("b").Pivot()}, []string{"step b: a second pivot"}},
		"bare before pivot": {[]steps.Declared[order]{named("a").NoCompensation(), named("b").Compensate(undo), named("c"), named("d").Pivot(), named("e")}, []string{"step c: it stands before the pivot d and has no compensation"}},
		"several at once":   {[]steps.Declared[order]{named("a").Timeout(0), named("b").MaxAttempts(0)}, []string{"step a: Timeout", "step b: MaxAttempts"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := saga.New(saga.Define("op", saga.NoResult[order], tc.declared...), memory.New())
			require.ErrorIs(t, err, saga.ErrInvalidDefinition)
			for _, says := range tc.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func twice(s *steps.Step[order, int]) []steps.Declared[order] { return []steps.Declared[order]{s, s} }

func TestNewTakesWhatIsRight(t *testing.T) {
	t.Parallel()
	longest := make([]byte, 64)
	for i := range longest {
		longest[i] = "aZ09_-."[i%7]
	}
	for name, declared := range map[string][]steps.Declared[order]{
		"the longest name":        {steps.New(string(longest), do)},
		"one character":           {steps.New("x", do)},
		"bare without a pivot":    {steps.New("a", do), steps.New("b", do)},
		"a pivot, then bare":      {steps.New("a", do).Compensate(undo), steps.New("b", do).Pivot(), steps.New("c", do)},
		"AtMostOnce with a Probe": {steps.New("a", do).AtMostOnce().Probe(probe).Timeout(1).CompensateRetry(steps.RetryPolicy{})},
		"the widest policy":       {steps.New("a", do).Retry(steps.RetryPolicy{Initial: 1, Max: 1, Multiplier: 1, Jitter: 1, PerRun: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := saga.New(saga.Define("op", saga.NoResult[order], declared...), memory.New())
			require.NoError(t, err)
		})
	}
}

// A step may stand in several definitions, at different places.
func TestAStepMayStandInSeveralDefinitions(t *testing.T) {
	t.Parallel()
	shared := newStep()
	first := steps.New("first", func(context.Context, *orderRun) (string, error) { return "first", nil })
	result := func(_ context.Context, r *orderRun) (int, error) { return shared.Output(r), nil }
	for _, declared := range [][]steps.Declared[order]{{shared, first}, {first, shared}, {shared}} {
		o, err := saga.New(saga.Define("op", result, declared...), memory.New())
		require.NoError(t, err)
		got, err := o.Run(t.Context(), saga.Key{ID: "1"}, order{})
		require.NoError(t, err)
		require.Equal(t, 7, got)
	}
}

func TestPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		p    steps.RetryPolicy
		says string
	}{
		"nothing":                 {steps.RetryPolicy{}, ""},
		"everything":              {steps.RetryPolicy{Initial: time.Second, Max: time.Minute, Multiplier: 1.5, Jitter: 0.1, PerRun: 7}, ""},
		"no jitter":               {steps.RetryPolicy{Jitter: -1}, ""},
		"constant":                {steps.RetryPolicy{Initial: time.Second, Max: time.Second, Multiplier: 1}, ""},
		"negative Initial":        {steps.RetryPolicy{Initial: -1}, "negative wait"},
		"negative Max":            {steps.RetryPolicy{Max: -1}, "negative wait"},
		"Max below Initial":       {steps.RetryPolicy{Initial: 2, Max: 1}, "shorter"},
		"Multiplier below 1":      {steps.RetryPolicy{Multiplier: 0.99}, "Multiplier"},
		"negative Multiplier":     {steps.RetryPolicy{Multiplier: -2}, "Multiplier"},
		"Multiplier not a number": {steps.RetryPolicy{Multiplier: math.NaN()}, "Multiplier"},
		"Jitter over 1":           {steps.RetryPolicy{Jitter: 1.01}, "Jitter"},
		"Jitter not a number":     {steps.RetryPolicy{Jitter: math.NaN()}, "Jitter"},
		"negative PerRun":         {steps.RetryPolicy{PerRun: -1}, "PerRun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.p.Check()
			_, withRetry := saga.New(saga.Define("op", saga.NoResult[order], newStep()), memory.New(), saga.WithRetry(tc.p))
			if tc.says == "" {
				require.NoError(t, err)
				require.NoError(t, withRetry)
				return
			}
			require.ErrorContains(t, err, "retry policy: ")
			require.ErrorContains(t, err, tc.says)
			require.ErrorIs(t, withRetry, saga.ErrInvalidDefinition)
			require.ErrorContains(t, withRetry, tc.says)
		})
	}
}

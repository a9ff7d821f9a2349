package compensate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// fake is an Undoer that records in memory, and fails at the call, from 1, that it is told.
type fake struct {
	t      *testing.T
	steps  []state.StepRecord
	means  []compensate.Means
	calls  []string
	failAt int
	ready  bool // the last call was a Ready
	ended  bool
	last   []string // NotUndone as it was given at the end
}

var _ compensate.Undoer = (*fake)(nil)

var errFake = errors.New("no further")

func (f *fake) call(what string) error {
	f.calls = append(f.calls, what)
	if len(f.calls) == f.failAt {
		return errFake
	}
	return nil
}

func (f *fake) Steps() []state.StepRecord { return slices.Clone(f.steps) }

func (f *fake) Ready(ctx context.Context) error {
	require.Equal(f.t, "of the run", ctx.Value(ctxKey{}))
	require.False(f.t, f.ended)
	err := f.call("ready")
	f.ready = err == nil
	return err
}

func (f *fake) Undo(ctx context.Context, i int, last bool, notUndone []string) error {
	require.Equal(f.t, "of the run", ctx.Value(ctxKey{}))
	require.True(f.t, f.ready, "each undo is asked for first")
	require.False(f.t, f.ended)
	f.ready = false
	if err := f.call("undo " + f.steps[i].Name); err != nil {
		return err
	}
	f.steps[i].Status = state.StepCompensated
	if last {
		f.ended, f.last = true, notUndone
	}
	return nil
}

func (f *fake) Finish(ctx context.Context, notUndone []string) error {
	require.Equal(f.t, "of the run", ctx.Value(ctxKey{}))
	require.False(f.t, f.ended)
	if err := f.call("finish"); err != nil {
		return err
	}
	f.ended, f.last = true, notUndone
	return nil
}

func (f *fake) run() error {
	ctx := context.WithValue(f.t.Context(), ctxKey{}, "of the run")
	return compensate.Run(ctx, f, func(i int) compensate.Means { return f.means[i] })
}

type ctxKey struct{}

// scene is four steps: done without a compensation, unknown, skipped, done, done with nothing to undo.
func scene(t *testing.T) *fake {
	return &fake{t: t,
		steps: []state.StepRecord{
			{Name: "bare", Status: state.StepDone}, {Name: "a", Status: state.StepPending, Unknown: true}, {Name: "b", Status: state.StepSkipped},
			{Name: "c", Status: state.StepDone}, {Name: "d", Status: state.StepDone}, {Name: "e", Status: state.StepPending},
		},
		means: []compensate.Means{
			compensate.Undeclared, compensate.Compensation, compensate.Compensation,
			compensate.Compensation, compensate.NothingToUndo, compensate.Compensation,
		},
	}
}

func TestTheLoopUndoesTheLastStepFirstAndEndsWithTheLastUndo(t *testing.T) {
	t.Parallel()
	f := scene(t)
	require.NoError(t, f.run())
	require.Equal(t, []string{"ready", "undo c", "ready", "undo a"}, f.calls)
	require.True(t, f.ended, "by the write of the last undo")
	require.Equal(t, []string{"bare"}, f.last)
}

func TestWithNothingToUndoTheLoopFinishes(t *testing.T) {
	t.Parallel()
	f := scene(t)
	f.steps = f.steps[:1]
	require.NoError(t, f.run())
	require.Equal(t, []string{"finish"}, f.calls)
	require.Equal(t, []string{"bare"}, f.last)

	f = &fake{t: t}
	require.NoError(t, f.run())
	require.Equal(t, []string{"finish"}, f.calls)
	require.Empty(t, f.last)
}

// Wherever it stops, it stops at once, and the next loop goes on there.
func TestTheLoopStopsAtAnErrorAndGoesOnThere(t *testing.T) {
	t.Parallel()
	whole := []string{"ready", "undo c", "ready", "undo a"}
	for n := range whole {
		t.Run(fmt.Sprintf("call %d", n+1), func(t *testing.T) {
			t.Parallel()
			f := scene(t)
			f.failAt = n + 1
			require.ErrorIs(t, f.run(), errFake)
			require.Equal(t, whole[:n+1], f.calls)
			require.False(t, f.ended)

			f.failAt, f.calls = 0, nil
			require.NoError(t, f.run())
			require.True(t, f.ended)
			require.Equal(t, []string{"bare"}, f.last)
			require.Equal(t, whole[n-n%2:], f.calls, "from the step at hand on")
		})
	}
	f := scene(t)
	f.steps, f.failAt = f.steps[:1], 1
	require.ErrorIs(t, f.run(), errFake)
	require.False(t, f.ended)
}

// The loop looks at the entries anew each time: what someone else has recorded meanwhile is not undone again.
func TestTheLoopLooksAtTheEntriesEachTime(t *testing.T) {
	t.Parallel()
	f := scene(t)
	inner := &meddler{f}
	ctx := context.WithValue(t.Context(), ctxKey{}, "of the run")
	require.NoError(t, compensate.Run(ctx, inner, func(i int) compensate.Means { return f.means[i] }))
	require.Equal(t, []string{"ready", "undo c", "finish"}, f.calls)
}

// meddler has step a recorded as undone together with c.
type meddler struct{ *fake }

func (m *meddler) Undo(ctx context.Context, i int, last bool, notUndone []string) error {
	err := m.fake.Undo(ctx, i, last, notUndone)
	m.steps[1].Status = state.StepCompensated
	return err
}

package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// buggy is a step with a When that panics until it is mended, and then says what it is to say.
type buggy struct {
	mended, says  bool
	asked, called int
}

func (b *buggy) step() *steps.Step[order, steps.None] {
	return steps.Do("b", func(context.Context, *orderRun) error { b.called++; return nil }).When(func(*orderRun) bool {
		b.asked++
		if !b.mended {
			panic("a bug")
		}
		return b.says
	})
}

// A When that could not be evaluated is still to be decided when a person has the step tried again.
func TestARetryAsksTheWhenThatBlockedTheRun(t *testing.T) {
	for _, says := range []bool{false, true} {
		for _, appended := range []bool{false, true} {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				b := &buggy{says: says}
				a := steps.Do("a", func(context.Context, *orderRun) error { return nil }).Pivot()
				unready := errors.New("no result yet")
				result := func(context.Context, *orderRun) (int, error) { return 0, unready }
				store := open()
				if appended { // the When stands at the seam of the stored plan and the longer one
					_, err := newSaga(t, saga.Define("op", result, a), store).Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, unready)
				}
				unready = nil
				o := newSaga(t, saga.Define("op", result, a, b.step()), store)
				for range 2 { // a Retry that comes too early changes nothing
					_, err := o.Run(t.Context(), theKey, theOrder)
					require.Equal(t, saga.CodeWhen, sagaError(t, err, saga.ErrBlocked).Code)
					require.NoError(t, o.Retry(t.Context(), theKey, "now?"))
				}
				asked := b.asked
				b.mended = true
				_, err := o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				assert.Equal(t, asked+1, b.asked)
				want := map[bool]string{false: "DONE SKIPPED", true: "DONE DONE"}[says]
				assert.Equal(t, want, stepStatuses(recordOf(t, store, theKey, "op")))
				assert.Equal(t, says, b.called == 1)
			})
		}
	}
}

// A step that was blocked for another reason had its When decided, and keeps that.
func TestARetryKeepsADecisionThatWasMade(t *testing.T) {
	asked, fails := 0, true
	a := steps.Do("a", func(context.Context, *orderRun) error { return nil }).Pivot()
	b := steps.Do("b", func(context.Context, *orderRun) error {
		if fails {
			return steps.Permanent(errors.New("no"))
		}
		return nil
	}).When(func(*orderRun) bool { asked++; return true })
	o := newSaga(t, saga.Define("op", saga.NoResult[order], a, b), memory.New())
	_, err := o.Run(t.Context(), theKey, theOrder)
	require.ErrorIs(t, err, saga.ErrBlocked)
	fails = false
	require.NoError(t, o.Retry(t.Context(), theKey, "mended"))
	_, err = o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err)
	assert.Equal(t, 1, asked)
}

// A replay runs nothing, so it needs no more time than the store takes; and neither a When nor a result function is
// blamed for a caller whose time is nearly over.
func TestLittleTimeAndAWhen(t *testing.T) {
	a := steps.Do("a", func(context.Context, *orderRun) error { return nil }).When(func(*orderRun) bool { return true })
	o := newSaga(t, saga.Define("op", saga.NoResult[order], a), memory.New())
	short := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), saga.DefaultMargin*3/5)
		defer cancel()
		_, err := o.Run(ctx, theKey, theOrder)
		return err
	}
	err := short()
	require.ErrorIs(t, err, saga.ErrInterrupted)
	require.ErrorContains(t, err, "give the call more time")
	_, err = o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err)
	for range 20 {
		require.NoError(t, short())
	}
}

// A first When that never answers keeps nobody from the answer that is stored.
func TestAReplayBehindAWhenThatHangs(t *testing.T) {
	hangs := make(chan struct{})
	close(hangs)
	a := steps.Do("a", func(context.Context, *orderRun) error { return nil }).When(func(*orderRun) bool { <-hangs; return true })
	o := newSaga(t, saga.Define("op", saga.NoResult[order], a), memory.New(), saga.WithLease(20*time.Millisecond))
	_, err := o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err)
	hangs = make(chan struct{})
	defer close(hangs)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = o.Run(ctx, theKey, theOrder)
	if !errors.Is(err, context.DeadlineExceeded) { // the caller's time may be over before the store is asked
		require.NoError(t, err)
	}
}

// A step that answers while its caller's time runs out is recorded, whatever is to be asked behind it.
func TestAStepThatEndsInTheMarginIsRecordedThoughAWhenFollows(t *testing.T) {
	calls := 0
	a := steps.Do("a", func(ctx context.Context, _ *orderRun) error {
		calls++
		<-ctx.Done()
		return nil
	})
	b := steps.Do("b", func(context.Context, *orderRun) error { return nil }).When(func(*orderRun) bool { return true })
	o := newSaga(t, saga.Define("op", saga.NoResult[order], a, b), memory.New())
	ctx, cancel := context.WithTimeout(t.Context(), saga.DefaultMargin+200*time.Millisecond)
	defer cancel()
	_, err := o.Run(ctx, theKey, theOrder)
	require.ErrorIs(t, err, saga.ErrInterrupted)
	rec, err := o.Get(t.Context(), theKey)
	require.NoError(t, err)
	assert.Equal(t, "DONE PENDING", stepStatuses(rec))
	assert.Equal(t, state.StatusInterrupted, rec.Status)
	_, err = o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err)
	assert.Equal(t, 1, calls)
}

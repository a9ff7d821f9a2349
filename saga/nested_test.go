package saga_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

var errInner = errors.New("the inner saga's own trouble")

// inner is what the run of another saga may end with.
func inner(kind error) error {
	return &saga.Error{Kind: kind, Key: saga.Key{Operation: "inner", ID: "1"}, Step: "x", Err: errInner}
}

var innerKinds = []error{
	saga.ErrInProgress, saga.ErrReversed, saga.ErrBlocked, saga.ErrPayloadMismatch, saga.ErrLeaseLost,
	saga.ErrDefinitionChanged, saga.ErrInvalidKey, saga.ErrInvalidInput, saga.ErrTooLarge, saga.ErrStore, saga.ErrNotFound, saga.ErrNotAllowed,
}

// A step runs another saga and hands its error on. What its caller is told by errors.Is is about the caller's own run
// alone, and so is what is made of it: a wait, a listener's event, a recovery's count.
func TestTheErrorOfASagaInAStep(t *testing.T) {
	for _, kind := range innerKinds {
		t.Run(kind.Error(), func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				calls, lost := 0, 0
				d := saga.Define("outer", saga.NoResult[order], steps.Do("inner", func(context.Context, *orderRun) error {
					calls++
					return inner(kind)
				}).Retry(once))
				o := newSaga(t, d, open(), saga.WithListener(saga.Listener{LeaseLost: func(context.Context, saga.RunEvent) { lost++ }}))
				_, err := o.Run(t.Context(), theKey, theOrder, saga.Wait(time.Minute))
				e := sagaError(t, err, saga.ErrInterrupted)
				require.Equal(t, 1, calls, "it is its own holder; there is nobody to wait for")
				require.Zero(t, lost)
				require.NotErrorIs(t, err, kind)
				require.ErrorIs(t, err, errInner, "why it was interrupted can be told")
				require.ErrorIs(t, e.Err, kind, "and what the inner run came to")

				got, err := saga.Recover(t.Context(), o)
				require.NoError(t, err)
				require.Equal(t, saga.Recovered{Interrupted: 1}, got)
			})
		})
	}
}

// The failure of another run is definite, also when it is replayed, since a crash in between must not make a difference. No
// other end of it is, whatever its own steps have called permanent: what is blocked has not been undone.
func TestTheClassOfTheErrorOfASagaInAStep(t *testing.T) {
	for name, tc := range map[string]struct {
		err       error
		permanent bool
		undone    []string
	}{
		"failed":                    {&saga.Error{Kind: saga.ErrFailed, Err: steps.Permanent(errInner)}, true, []string{"before"}},
		"failed, replayed":          {inner(saga.ErrFailed), true, []string{"before"}},
		"failed, in words":          {fmt.Errorf("the inner saga: %w", inner(saga.ErrFailed)), true, []string{"before"}},
		"failed, not undone":        {&saga.Error{Kind: saga.ErrFailed, NotUndone: []string{"x"}}, true, []string{"inner", "before"}},
		"blocked":                   {&saga.Error{Kind: saga.ErrBlocked, Err: steps.Permanent(errInner)}, false, []string{"inner", "before"}},
		"blocked, and that is that": {steps.Permanent(inner(saga.ErrBlocked)), true, []string{"before"}},
		"blocked, by backoff":       {errors.Join(inner(saga.ErrBlocked), backoff.Permanent(errInner)), true, []string{"before"}},
		"in progress":               {inner(saga.ErrInProgress), false, []string{"inner", "before"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				var undone []string
				undo := func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
					undone = append(undone, r.Step())
					return nil
				}
				before := steps.Do("before", func(context.Context, *orderRun) error { return nil }).Compensate(undo)
				d := saga.Define("outer", saga.NoResult[order], before,
					steps.Do("inner", func(context.Context, *orderRun) error { return tc.err }).Compensate(undo).Retry(once))
				o := newSaga(t, d, open())
				_, err := o.Run(t.Context(), theKey, theOrder)
				if tc.permanent {
					sagaError(t, err, saga.ErrFailed)
				} else {
					sagaError(t, err, saga.ErrInterrupted)
					require.NoError(t, o.Cancel(t.Context(), theKey, "given up"))
				}
				require.Equal(t, tc.undone, undone)
			})
		})
	}
}

// A compensation reverses what another saga has done, and that stops on the way: nothing is reversed yet.
func TestTheErrorOfASagaInACompensation(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		undo := inner(saga.ErrReversed)
		d := saga.Define("outer", saga.NoResult[order], steps.Do("inner", func(context.Context, *orderRun) error { return nil }).
			Compensate(func(context.Context, *orderRun, steps.Outcome[steps.None]) error { return undo }).CompensateRetry(once))
		o := newSaga(t, d, open())
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		sagaError(t, o.Reverse(t.Context(), theKey, "a mistake"), saga.ErrInterrupted)
		undo = nil
		require.NoError(t, o.Reverse(t.Context(), theKey, "a mistake"))
	})
}

// What the library itself says beside an inner run's error is said as ever.
func TestWhatStandsBesideTheErrorOfASaga(t *testing.T) {
	err := error(&saga.Error{Kind: saga.ErrInterrupted, Err: errors.Join(saga.ErrStore, inner(saga.ErrFailed))})
	require.ErrorIs(t, err, saga.ErrInterrupted)
	require.ErrorIs(t, err, saga.ErrStore)
	require.NotErrorIs(t, err, saga.ErrFailed)
	require.ErrorIs(t, &saga.Error{Kind: saga.ErrFailed, Err: steps.Permanent(inner(saga.ErrFailed))}, saga.ErrFailed)
}

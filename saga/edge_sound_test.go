package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// wild is an error that panics when it is looked at as a typed nil.
type wild struct{ inner error }

func (e *wild) Error() string { return "wild: " + e.inner.Error() }

func (e *wild) Unwrap() error { return e.inner }

// wildJSON can't be encoded, and says so with a typed nil.
type wildJSON struct{}

func (wildJSON) MarshalJSON() ([]byte, error) { var e *wild; return nil, e }

// panicJSON panics when it is encoded.
type panicJSON struct{}

func (panicJSON) MarshalJSON() ([]byte, error) { panic("boom") }

// A caller may end its context with any error, also with one whose methods panic.
func TestACauseThatCannotBeLookedAt(t *testing.T) {
	for name, when := range map[string]string{"before the run": "before", "during the step": "during"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			var typed *wild
			o := newSaga(t, oneStep(func(ctx context.Context, _ *orderRun) error {
				cancel(typed)
				<-ctx.Done()
				return ctx.Err()
			}), memory.New())
			if when == "before" {
				cancel(typed)
			}
			_, err := o.Run(ctx, theKey, theOrder)
			assert.ErrorIs(t, err, saga.ErrInterrupted)
			assert.ErrorContains(t, err, "*saga_test.wild")
			assert.NotErrorIs(t, err, errGone)
			_, err = saga.Recover(ctx, o)
			assert.Error(t, err)
			_, err = o.Get(ctx, theKey)
			assert.NotErrorIs(t, err, errGone)
		})
	}
}

func TestErrorsOfJSONMethodsThatCannotBeLookedAt(t *testing.T) {
	t.Run("result", func(t *testing.T) {
		a := steps.New("a", func(context.Context, *orderRun) (wildJSON, error) { return wildJSON{}, nil })
		_, err := newSaga(t, saga.Define("op", saga.NoResult[order], a), memory.New()).Run(t.Context(), theKey, theOrder)
		assert.Equal(t, saga.CodeUnrecordable, sagaError(t, err, saga.ErrFailed).Code)
	})
	t.Run("input", func(t *testing.T) {
		a := steps.Do("a", func(context.Context, *steps.Run[wildJSON]) error { return nil })
		_, err := newSaga(t, saga.Define("op", saga.NoResult[wildJSON], a), memory.New()).Run(t.Context(), theKey, wildJSON{})
		sagaError(t, err, saga.ErrInvalidInput)
	})
	for name, body := range map[string]any{"message": wildJSON{}, "message whose method panics": panicJSON{}} {
		t.Run(name, func(t *testing.T) {
			o := newSaga(t, oneStep(func(_ context.Context, r *orderRun) error {
				r.Emit(outbox.Message{Topic: "t", Body: body})
				return nil
			}), memory.New())
			_, err := o.Run(t.Context(), theKey, theOrder)
			assert.Equal(t, saga.CodeInvalidMessage, sagaError(t, err, saga.ErrFailed).Code)
		})
	}
}

func TestThingsThatAreNil(t *testing.T) {
	def := oneStep(func(context.Context, *orderRun) error { return nil })
	var relay *outbox.Relay
	_, err := saga.New(def, memory.New(), saga.WithRelay(relay))
	require.ErrorIs(t, err, saga.ErrInvalidDefinition)
	require.ErrorContains(t, err, "WithRelay")
	var typed *wild
	_, err = saga.New(def, memory.New(), saga.WithErrors(map[string]error{"declined": typed}))
	require.ErrorIs(t, err, saga.ErrInvalidDefinition)
	require.ErrorContains(t, err, `"declined"`)
	var none *saga.Orchestrator[order, steps.None]
	for _, missing := range []saga.Recoverable{nil, none} {
		_, err = saga.Recover(t.Context(), newSaga(t, def, memory.New()), missing)
		require.ErrorContains(t, err, "orchestrator 2 is nil")
		require.ErrorContains(t, saga.RecoverLoop(t.Context(), time.Second, missing), "orchestrator 1 is nil")
	}
}

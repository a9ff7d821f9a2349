package saga_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// An interceptor doesn't wait for the step: it is not tried again while it still runs.
func TestAnInterceptorThatReturnsBeforeTheStep(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		began, gate := make(chan struct{}), make(chan struct{})
		var calls, running atomic.Int64
		d := saga.Define("slow", saga.NoResult[order], steps.Do("step", func(context.Context, *orderRun) error {
			defer running.Add(-1)
			if running.Add(1) > 1 {
				return steps.Permanent(errors.New("two at a time"))
			}
			if calls.Add(1) == 1 {
				close(began)
				<-gate
			}
			return nil
		}).Retry(steps.RetryPolicy{Initial: time.Millisecond, PerRun: 3}))
		var first atomic.Bool
		o := newSaga(t, d, open(), saga.WithInterceptor(func(ctx context.Context, _ saga.Call, next func(context.Context) error) error {
			if first.Swap(true) {
				return next(ctx)
			}
			go func() { _ = next(ctx) }()
			<-began
			time.AfterFunc(50*time.Millisecond, func() { close(gate) })
			return errors.New("it takes too long")
		}))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.EqualValues(t, 2, calls.Load())
	})
}

// An interceptor keeps next for later: a call that is over can't be begun.
func TestAnInterceptorThatCallsTheStepTooLate(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		p := new(participant)
		var kept func(context.Context) error
		o := newSaga(t, chain{p: p}.of(1), open(), saga.WithInterceptor(func(_ context.Context, _ saga.Call, next func(context.Context) error) error {
			kept = next
			return errors.New("not now")
		}))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrInterrupted)
		require.Error(t, kept(t.Context()))
		require.Empty(t, p.seen())
	})
}

// A panic on a goroutine of an interceptor's would end the process. On the interceptor's own it goes through it, as any does.
func TestAPanicOfAStepThatAnInterceptorCallsElsewhere(t *testing.T) {
	for name, elsewhere := range map[string]bool{"on another goroutine": true, "on its own": false} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.ErrorLevel)
			passed := false
			o := newSaga(t, oneStep(func(context.Context, *orderRun) error { panic("boom") }), memory.New(), saga.WithLogger(zap.New(core)),
				saga.WithInterceptor(func(ctx context.Context, _ saga.Call, next func(context.Context) error) error {
					if !elsewhere {
						passed = true
						defer func() { passed = true }()
						err := next(ctx)
						passed = false
						return err
					}
					done := make(chan error, 1)
					go func() { done <- next(ctx) }()
					return <-done
				}))
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.ErrorIs(t, err, saga.ErrInterrupted)
			require.ErrorContains(t, err, "panic: boom")
			require.Equal(t, !elsewhere, passed)
			require.Equal(t, 1, logs.FilterMessage("step_panic").Len(), "with its stack, once")
		})
	}
}

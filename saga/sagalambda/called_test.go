package sagalambda_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// within fails the test when f has not returned soon: what ends the goroutine it runs in would hang it.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { done <- returned }()
		f()
		returned = true
	}()
	select {
	case returned := <-done:
		require.True(t, returned, "its goroutine was ended")
	case <-time.After(10 * time.Second):
		require.FailNow(t, "it hangs")
	}
}

// exits is a Runner that ends its goroutine for one order.
func exits(no string) fake {
	return func(_ context.Context, _ saga.Key, in order) (string, error) {
		if in.No == no {
			runtime.Goexit()
		}
		return "ch-" + in.No, nil
	}
}

func TestARunThatEndsItsGoroutineIsReturned(t *testing.T) {
	log := &logged{}
	three := queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2"), message(t, "m3", "", "o-3"))
	for _, concurrency := range []int{1, 3} {
		within(t, func() {
			resp, err := sagalambda.SQS(exits("o-2"), byNo, sagalambda.WithConcurrency(concurrency), sagalambda.WithLogger(log.logger()))(t.Context(), three)
			assert.Equal(t, []string{"m2"}, returned(t, resp, err), "the others run all the same")
		})
	}
	assert.Contains(t, log.text(), "record_panic")
	assert.Contains(t, log.text(), `"msg":"record_returned","record":"m2","key":"##o-2","reason":"the runner has ended its goroutine (runtime.Goexit)"`)
	within(t, func() {
		_, err := sagalambda.Invoke(exits("o-1"), byNo)(t.Context(), message(t, "m1", "", "o-1"))
		assert.ErrorContains(t, err, "the runner has ended its goroutine")
	})
	for name, acknowledged := range ways {
		within(t, func() { assert.False(t, acknowledged(t, exits("o-1")), name) })
	}
}

func TestAListenerThatEndsTheRunsGoroutineAcknowledgesNothing(t *testing.T) {
	shop := &shop{}
	o := shop.on(t, newStore(), saga.WithListener(saga.Listener{StepStarted: func(context.Context, saga.StepEvent) { runtime.Goexit() }}))
	within(t, func() {
		resp, err := sagalambda.SQS(o, byNo, sagalambda.WithConcurrency(1))(t.Context(), queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2")))
		assert.Equal(t, []string{"m1", "m2"}, returned(t, resp, err))
	})
	assert.Empty(t, shop.reserved)
}

func TestWhatEndsItsGoroutineBesideARunIsReturnedToo(t *testing.T) {
	one := queue(message(t, "m1", "", "o-1"))
	for name, handle := range map[string]func(context.Context, events.SQSEvent) (events.SQSEventResponse, error){
		"the request function": sagalambda.SQS(always(nil), func(events.SQSMessage) (saga.Key, order, error) {
			runtime.Goexit()
			return saga.Key{}, order{}, nil
		}),
		"the disposition": sagalambda.SQS(always(&saga.Error{Kind: saga.ErrFailed}), byNo, sagalambda.WithFailed(func(context.Context, sagalambda.Record) error {
			runtime.Goexit()
			return nil
		})),
	} {
		within(t, func() {
			resp, err := handle(t.Context(), one)
			assert.Equal(t, []string{"m1"}, returned(t, resp, err), name)
		})
	}
	within(t, func() {
		got, err := sagalambda.APIGatewayV2(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))(t.Context(), v2Event(usual, ""))
		assert.NoError(t, err)
		assert.Equal(t, http.StatusInternalServerError, got.StatusCode)
	})
}

// wrapping is an error whose methods panic when it is nil.
type wrapping struct{ inner error }

func (w *wrapping) Error() string { return "wrapping " + w.inner.Error() }
func (w *wrapping) Unwrap() error { return w.inner }

// everything is an error that says it is every other.
type everything struct{ error }

func (everything) Is(error) bool { return true }

// unsound are errors that can't be looked at as others can.
var unsound = map[string]error{
	"a typed nil":             (*wrapping)(nil),
	"a wrapped typed nil":     fmt.Errorf("deep down: %w", (*wrapping)(nil)),
	"a joined typed nil":      errors.Join(&saga.Error{Kind: saga.ErrFailed}, (*wrapping)(nil)),
	"a typed nil as a cause":  &saga.Error{Kind: saga.ErrFailed, Err: (*wrapping)(nil)},
	"a nil *saga.Error":       fmt.Errorf("deep down: %w", (*saga.Error)(nil)),
	"a nil *Refusal":          fmt.Errorf("deep down: %w", (*sagalambda.Refusal)(nil)),
	"a nil *MalformedError":   fmt.Errorf("deep down: %w", (*sagalambda.MalformedError)(nil)),
	"one that is every error": everything{errors.New("s3cret")},
}

func TestAnErrorThatCantBeLookedAtHasItsRecordReturned(t *testing.T) {
	two := queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2"))
	for name, bad := range unsound {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			resp, err := sagalambda.SQS(always(nil), func(m events.SQSMessage) (saga.Key, order, error) {
				if m.MessageId == "m1" {
					return saga.Key{}, order{}, bad
				}
				return byNo(m)
			}, sagalambda.WithLogger(log.logger()))(t.Context(), two)
			assert.Equal(t, []string{"m1"}, returned(t, resp, err), "a request function's")
			assert.Contains(t, log.text(), `"msg":"record_malformed","record":"m1","reason":"the function that makes the key and the input has returned an error of type `)

			resp, err = sagalambda.SQS(fake(func(_ context.Context, key saga.Key, _ order) (string, error) {
				if key.ID == "o-1" {
					return "", bad
				}
				return "", nil
			}), byNo, sagalambda.WithLogger(log.logger()))(t.Context(), two)
			assert.Equal(t, []string{"m1"}, returned(t, resp, err), "a runner's")
			assert.Contains(t, log.text(), `"reason":"the runner has returned an error of type `)
			assert.NotContains(t, log.text(), "s3cret")

			err = sagalambda.Event(always(&saga.Error{Kind: saga.ErrFailed}), byNo, sagalambda.WithFailed(func(context.Context, sagalambda.Record) error { return bad }))(t.Context(), two.Records[0])
			require.ErrorContains(t, err, "the disposition has returned an error of type ")

			_, err = sagalambda.Invoke(always(bad), byNo)(t.Context(), two.Records[0])
			require.ErrorContains(t, err, "the runner has returned an error of type ")
		})
	}
}

func TestATypedNilIsNoRunnerAndNoHandler(t *testing.T) {
	_, err := sagalambda.SQS((*saga.Orchestrator[order, string])(nil), byNo)(t.Context(), queue())
	require.ErrorContains(t, err, "the runner is nil")
	_, err = sagalambda.Runner(fake(nil)).Run(t.Context(), saga.Key{ID: "1"}, order{})
	require.ErrorContains(t, err, "the runner is nil")
	_, err = sagalambda.APIGatewayV2(http.HandlerFunc(nil))(t.Context(), v2Event(usual, ""))
	require.ErrorContains(t, err, "the HTTP handler is nil")
}

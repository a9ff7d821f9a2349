package saga_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Whoever says "for ever" with the longest duration there is must not be forgotten at once, not even by a relay that sets
// the expiry.
func TestTheLongestRetention(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store := open()
		d := saga.Define("kept", saga.NoResult[order], steps.Do("notify", func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "t", Body: 1})
			return nil
		})).Retention(math.MaxInt64)
		o := newSaga(t, d, store, saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		relay, err := outbox.NewRelay(store, &published{}, outbox.WithClock(clk))
		require.NoError(t, err)
		require.NoError(t, relay.Drain(t.Context()))

		rec, err := o.Get(t.Context(), theKey)
		require.NoError(t, err)
		require.Greater(t, rec.Retention, 100*365*24*time.Hour)
		require.True(t, rec.ExpiresAt.After(clk.Now().Add(100*365*24*time.Hour)), "%v", rec.ExpiresAt)
		_, err = state.MarshalRecord(rec)
		require.NoError(t, err)
	})
}

func TestTheLongestRetryAfter(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		var calls atomic.Int64
		d := saga.Define("later", saga.NoResult[order], steps.Do("wait", func(context.Context, *orderRun) error {
			calls.Add(1)
			return steps.RetryAfter(math.MaxInt64, nil)
		}))
		o := newSaga(t, d, open(), saga.WithClock(clk))
		for range 2 {
			_, err := o.Run(t.Context(), theKey, theOrder)
			e := sagaError(t, err, saga.ErrInterrupted)
			require.Greater(t, e.RetryAfter, 100*365*24*time.Hour)
			require.EqualValues(t, 1, calls.Load())
		}
	})
}

// stuckBody is a body that can't be encoded before its gate is open.
type stuckBody struct{ gate chan struct{} }

func (b stuckBody) MarshalJSON() ([]byte, error) {
	<-b.gate
	return []byte(`"late"`), nil
}

// A step that hangs within Emit is given up like one that hangs elsewhere.
func TestABodyThatIsEncodedForEver(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		gate := make(chan struct{})
		left := make(chan struct{})
		d := saga.Define("emits", saga.NoResult[order], steps.Do("notify", func(_ context.Context, r *orderRun) error {
			defer close(left)
			r.Emit(outbox.Message{Topic: "t", Body: stuckBody{gate}})
			return nil
		}).Timeout(10*time.Millisecond))
		o := newSaga(t, d, open(), saga.WithLease(100*time.Millisecond))
		ended := make(chan error, 1)
		go func() {
			_, err := o.Run(context.WithoutCancel(t.Context()), theKey, theOrder)
			ended <- err
		}()
		select {
		case err := <-ended:
			close(gate)
			require.ErrorIs(t, err, saga.ErrInterrupted)
		case <-time.After(20 * time.Second):
			close(gate)
			require.Fail(t, "Run waits for the body", "it ended with %v when that was given", <-ended)
		}
		<-left
	})
}

// nested is a result that may be nested deeper than encoding/json reads, though it writes it.
type nested struct {
	In *nested `json:"in,omitempty"`
}

func TestAResultThatIsNestedTooDeep(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		var undone []bool
		deep := steps.New("deep", func(context.Context, *orderRun) (*nested, error) {
			out := &nested{}
			for range 11_000 {
				out = &nested{out}
			}
			return out, nil
		}).Compensate(func(_ context.Context, _ *orderRun, did steps.Outcome[*nested]) error {
			undone = append(undone, did.Known)
			return nil
		})
		d := saga.Define("nests", saga.NoResult[order], deep, steps.Do("next", func(context.Context, *orderRun) error {
			return errors.New("never called")
		}))
		o := newSaga(t, d, open())
		_, err := o.Run(t.Context(), theKey, theOrder)
		e := sagaError(t, err, saga.ErrFailed)
		require.Equal(t, "deep", e.Step)
		require.Equal(t, saga.CodeUnrecordable, e.Code)
		require.Equal(t, []bool{false}, undone)
	})
}

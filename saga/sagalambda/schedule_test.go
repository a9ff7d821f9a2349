package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// drain is a Drainer that does what it is told.
type drain func(context.Context) error

func (d drain) Drain(ctx context.Context) error { return d(ctx) }

func TestAScheduledInvocationRecoversAndDrains(t *testing.T) {
	store := newStore()
	fails := true
	shop := &shop{charge: func(_ context.Context, r *orderRun) error {
		if fails {
			return errors.New("not now")
		}
		r.Emit(outbox.Message{Topic: "charged", Key: r.Input.No, Body: r.Input})
		return nil
	}}
	o := shop.on(t, store)
	_, err := o.Run(t.Context(), saga.Key{ID: "o-1"}, order{No: "o-1"})
	require.ErrorIs(t, err, saga.ErrInterrupted)
	fails = false
	var sent []string
	relay, err := outbox.NewRelay(store, outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		var out []outbox.Result
		for _, m := range msgs {
			sent = append(sent, m.Topic+" "+m.Key)
			out = append(out, outbox.Result{ID: m.ID})
		}
		return out, nil
	}))
	require.NoError(t, err)
	tick := sagalambda.Scheduled(relay, []saga.Recoverable{o})
	swept, err := tick(invocation(t, time.Minute), json.RawMessage(`{"source":"aws.events"}`))
	require.NoError(t, err)
	assert.Equal(t, sagalambda.Swept{Recovered: saga.Recovered{Completed: 1}, Drained: true}, swept)
	assert.Equal(t, []string{"charged o-1"}, sent)
	assert.Equal(t, state.StatusCompleted, recordOf(t, store).Status)
	swept, err = tick(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, sagalambda.Swept{Drained: true}, swept, "nothing is left")
	assert.Len(t, sent, 1)
}

func TestMessagesAreSentAlsoWhenRecoveryHasNotEnoughTime(t *testing.T) {
	store := newStore()
	calls := 0
	shop := &shop{charge: func(ctx context.Context, _ *orderRun) error {
		if calls++; calls == 1 {
			return errors.New("not now")
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	o := shop.on(t, store)
	_, err := o.Run(t.Context(), saga.Key{ID: "o-1"}, order{No: "o-1"})
	require.ErrorIs(t, err, saga.ErrInterrupted)
	drained := false
	ctx := invocation(t, 2500*time.Millisecond)
	swept, err := sagalambda.Scheduled(drain(func(ctx context.Context) error {
		end, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.Greater(t, time.Until(end), 500*time.Millisecond, "its share")
		drained = true
		return nil
	}), []saga.Recoverable{o})(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	assert.True(t, drained)
	assert.Equal(t, 1, swept.Recovered.Interrupted)
	assert.Equal(t, 2, calls)
}

// mute is a store that can't be listed.
type mute struct{ state.Store }

func (mute) List(context.Context, state.Query) (state.Page, error) {
	return state.Page{}, errors.New("no route")
}

// listing is a store that is listed as this says.
type listing struct {
	state.Store
	list func(context.Context) error
}

func (l listing) List(ctx context.Context, _ state.Query) (state.Page, error) {
	return state.Page{}, l.list(ctx)
}

func TestTheEndOfRecoverysTimeHidesNoOtherError(t *testing.T) {
	spent := func(ctx context.Context) error { // as a store that is listed page by page, when the time is over
		<-ctx.Done()
		return fmt.Errorf("the query was called off: %w", ctx.Err())
	}
	errDenied := errors.New("access denied")
	for name, tc := range map[string]struct {
		list func(context.Context) error
		want error // nil: none
	}{
		"the end of its time":      {spent, nil},
		"another error":            {func(context.Context) error { return errDenied }, errDenied},
		"another error in the end": {func(ctx context.Context) error { <-ctx.Done(); return errDenied }, errDenied},
		"a timeout of the network": {func(context.Context) error { return fmt.Errorf("dial: %w", context.DeadlineExceeded) }, saga.ErrStore},
	} {
		t.Run(name, func(t *testing.T) {
			both := []saga.Recoverable{new(shop).on(t, listing{newStore(), spent}), new(shop).on(t, listing{newStore(), tc.list})}
			swept, err := sagalambda.Scheduled(nil, both)(invocation(t, 300*time.Millisecond), nil)
			assert.True(t, swept.Drained)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tc.want)
			assert.NotContains(t, err.Error(), "called off", "that is the end of the time")
		})
	}
}

func TestWhatIsRecoveredIsCountedTogether(t *testing.T) {
	var both []saga.Recoverable
	for range 2 {
		fails := true
		shop := &shop{charge: func(context.Context, *orderRun) error {
			if fails {
				return errors.New("not now")
			}
			return nil
		}}
		o := shop.on(t, newStore())
		for _, no := range []string{"o-1", "o-2"} {
			_, err := o.Run(t.Context(), saga.Key{ID: no}, order{No: no})
			require.ErrorIs(t, err, saga.ErrInterrupted)
		}
		fails = false
		both = append(both, o)
	}
	swept, err := sagalambda.Scheduled(nil, both)(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, saga.Recovered{Completed: 4}, swept.Recovered)
}

func TestAScheduledInvocationRefusesWhatIsNil(t *testing.T) {
	log := &logged{}
	_, err := sagalambda.Scheduled((*outbox.Relay)(nil), nil, sagalambda.WithLogger(log.logger()))(t.Context(), nil)
	require.ErrorContains(t, err, "the relay is a nil *outbox.Relay")
	assert.Contains(t, log.text(), "lambda_handler_misconfigured")
	_, err = sagalambda.Scheduled(drain(nil), nil)(t.Context(), nil)
	require.ErrorContains(t, err, "the relay is a nil")
	for _, none := range []saga.Recoverable{nil, (*saga.Orchestrator[order, string])(nil)} {
		_, err = sagalambda.Scheduled(nil, []saga.Recoverable{new(shop).on(t, newStore()), none})(t.Context(), nil)
		require.ErrorContains(t, err, "orchestrator 2 of 2 is nil")
	}
	swept, err := sagalambda.Scheduled(nil, nil)(t.Context(), nil)
	require.NoError(t, err)
	assert.True(t, swept.Drained)
}

func TestARelayThatDoesNotReturnIsToldAsAnError(t *testing.T) {
	log := &logged{}
	for what, d := range map[string]drain{
		"has panicked with a string":            func(context.Context) error { panic("s3cret") },
		"has ended its goroutine":               func(context.Context) error { runtime.Goexit(); return nil },
		"has returned an error of type *sagala": func(context.Context) error { return (*wrapping)(nil) },
	} {
		within(t, func() {
			swept, err := sagalambda.Scheduled(d, nil, sagalambda.WithLogger(log.logger()))(t.Context(), nil)
			assert.ErrorContains(t, err, "the relay "+what)
			assert.False(t, swept.Drained)
		})
	}
	within(t, func() {
		store := listing{newStore(), func(context.Context) error { runtime.Goexit(); return nil }}
		_, err := sagalambda.Scheduled(nil, []saga.Recoverable{new(shop).on(t, store)})(t.Context(), nil)
		assert.ErrorContains(t, err, "the recovery has ended its goroutine")
	})
	assert.Contains(t, log.text(), "sweep_panic")
	assert.NotContains(t, log.text(), "s3cret")
}

func TestAScheduledInvocationTellsWhatItCouldNotDo(t *testing.T) {
	o := new(shop).on(t, mute{newStore()})
	drained := false
	swept, err := sagalambda.Scheduled(drain(func(context.Context) error { drained = true; return outbox.ErrOutage }), []saga.Recoverable{o})(invocation(t, time.Minute), nil)
	require.ErrorIs(t, err, saga.ErrStore)
	require.ErrorIs(t, err, outbox.ErrOutage)
	assert.True(t, drained, "one doesn't stop the other")
	assert.False(t, swept.Drained)
	_, err = sagalambda.Scheduled(nil, []saga.Recoverable{o})(t.Context(), nil)
	require.ErrorIs(t, err, saga.ErrStore)
}

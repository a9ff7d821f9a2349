package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
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

package sagahttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// dead is the record that a process leaves behind which died in the first step.
func dead(t *testing.T, clk *clock.Fake) *state.Record {
	t.Helper()
	input := []byte(theOrder)
	hash, err := state.PayloadHash(input)
	require.NoError(t, err)
	now := state.Milli(clk.Now())
	return &state.Record{
		Key: saga.Key{Tenant: "tenant-a", Operation: "checkout", ID: theKey}.String(), Operation: "checkout", Plan: []string{"reserve", "charge"},
		Retention: time.Hour, Status: state.StatusInProgress, CurrentStep: "reserve",
		Steps:       []state.StepRecord{{Name: "reserve", Status: state.StepPending}, {Name: "charge", Status: state.StepPending}},
		PayloadHash: hash, Input: input, Owner: "the dead", WriteID: "its write", Runs: 1,
		LeaseUntil: now.Add(saga.DefaultLease), Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
}

func TestARunWhoseProcessDiedGoesOnWhenItsLeaseHasLapsed(t *testing.T) {
	clk := new(clock.Fake)
	store, shop := memory.New(memory.WithClock(clk)), &shop{}
	existing, err := store.Create(t.Context(), dead(t, clk))
	require.NoError(t, err)
	require.Nil(t, existing)
	s := serve(t, sagahttp.Handler(shop.on(t, store, saga.WithClock(clk)), usual))
	got := s.post(t, theKey, theOrder)
	assert.Equal(t, "in-progress", got.slug(t))
	assert.Equal(t, "30", got.header.Get("Retry-After"), "what is left of the lease")
	clk.Advance(29500 * time.Millisecond)
	assert.Equal(t, "1", s.post(t, theKey, theOrder).header.Get("Retry-After"))
	clk.Advance(500 * time.Millisecond)
	got = s.post(t, theKey, theOrder)
	assert.Equal(t, http.StatusCreated, got.status, got.body)
	assert.False(t, got.replayed())
	assert.EqualValues(t, 1200, shop.total())
}

func TestAnExpiredRunIsForgotten(t *testing.T) {
	clk := new(clock.Fake)
	store, shop := memory.New(memory.WithClock(clk)), &shop{}
	o, err := saga.New(shop.definition().Retention(time.Hour), store, saga.WithClock(clk))
	require.NoError(t, err)
	s := serve(t, sagahttp.Handler(o, usual))
	require.Equal(t, http.StatusCreated, s.post(t, theKey, theOrder).status)
	clk.Advance(59 * time.Minute)
	assert.True(t, s.post(t, theKey, theOrder).replayed())
	clk.Advance(2 * time.Minute)
	got := s.post(t, theKey, `{"no":"another","amount":5}`)
	assert.Equal(t, http.StatusCreated, got.status)
	assert.False(t, got.replayed(), "the key is as new")
}

// deaf is a store that takes no writes of holders for a while.
type deaf struct {
	state.Store
	is atomic.Bool
}

func (d *deaf) Commit(ctx context.Context, ch *state.Change) error {
	if d.is.Load() {
		return errors.New("no route to s3cret.internal")
	}
	return d.Store.Commit(ctx, ch)
}

func TestAResultThatCouldNotBeSavedIsWorkedOutAgainUnderTheSameKey(t *testing.T) {
	store := &deaf{Store: newStore()}
	var keys []string
	shop := &shop{charge: func(_ context.Context, r *orderRun) error {
		keys = append(keys, r.IdempotencyKey())
		store.is.Store(len(keys) == 1)
		return nil
	}}
	s := serve(t, sagahttp.Handler(shop.on(t, store, saga.WithLease(200*time.Millisecond)), usual))
	got := s.post(t, theKey, theOrder)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Equal(t, "interrupted", got.slug(t))
	assert.NotContains(t, got.body, "s3cret")
	store.is.Store(false)

	client := &http.Client{Transport: &sagahttp.RetryTransport{Base: s.Client().Transport}} // until the lease has lapsed
	req := request(t, sagahttp.KeyContext(t.Context(), theKey), s.URL)
	req.SetBasicAuth("tenant-a", "")
	status, _ := ask(t, client, req)
	assert.Equal(t, http.StatusCreated, status)
	assert.Equal(t, []string{keys[0], keys[0]}, keys, "the participant knows the second call for the first")
}

// What a step does to its input is not seen by anyone else, the replay's comparison above all.
func TestAnInputThatAStepChangesIsStillTheSameRequest(t *testing.T) {
	calls := 0
	o, err := saga.New(saga.Once("checkout", func(_ context.Context, r *mapRun) (int, error) {
		calls++
		r.Input["amount"] = "changed"
		return len(r.Input), nil
	}), newStore())
	require.NoError(t, err)
	s := serve(t, sagahttp.Handler(o, sagahttp.Request[map[string]string](tenantOf)))
	const content = `{"amount":"1200"}`
	sameAgain(t, s.post(t, theKey, content), s, theKey, content)
	assert.Equal(t, 1, calls)
}

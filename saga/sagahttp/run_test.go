package sagahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// sameAgain sends the same request to another process (a handler of its own on the same store) and demands the same
// answer, but for the mark of a replay.
func sameAgain(t *testing.T, first reply, other server, key, body string) {
	t.Helper()
	again := other.post(t, key, body)
	assert.Equal(t, first.status, again.status)
	assert.Equal(t, first.body, again.body)
	assert.Equal(t, first.header.Get("Content-Type"), again.header.Get("Content-Type"))
	assert.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	assert.False(t, first.replayed())
	assert.True(t, again.replayed())
}

func TestACompletedRunAndItsReplay(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   []sagahttp.Option
		status int
		body   string
	}{
		"by default":   {nil, 201, "{\"charge_id\":\"ch-order-001\"}\n"},
		"200":          {[]sagahttp.Option{sagahttp.WithSuccess(http.StatusOK)}, 200, "{\"charge_id\":\"ch-order-001\"}\n"},
		"204, no body": {[]sagahttp.Option{sagahttp.WithSuccess(http.StatusNoContent)}, 204, ""},
		"with a location": {[]sagahttp.Option{sagahttp.WithLocation(func(k saga.Key) string { return "/orders/" + k.ID })}, 201,
			"{\"charge_id\":\"ch-order-001\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			shop, store := &shop{}, newStore()
			first := serve(t, sagahttp.Handler(shop.on(t, store), usual, tc.opts...)).post(t, theKey, theOrder)
			assert.Equal(t, tc.status, first.status)
			assert.Equal(t, tc.body, first.body)
			other := serve(t, sagahttp.Handler(shop.on(t, store), usual, tc.opts...))
			sameAgain(t, first, other, theKey, theOrder)
			sameAgain(t, first, other, `"order-001"`, `{ "amount": 1.2e3, "no": "order-\u0030\u00301" }`)
			assert.EqualValues(t, 1200, shop.total())
			if name == "with a location" {
				assert.Equal(t, "/orders/order-001", first.header.Get("Location"))
			}
		})
	}
}

func TestTenantsDoNotMeet(t *testing.T) {
	shop, store := &shop{}, newStore()
	s := serve(t, sagahttp.Handler(shop.on(t, store), usual))
	assert.False(t, s.post(t, theKey, theOrder).replayed())
	got := s.post(t, theKey, `{"no":"mine","amount":5}`, as("tenant-b"))
	assert.Equal(t, http.StatusCreated, got.status)
	assert.JSONEq(t, `{"charge_id":"ch-mine"}`, got.body)
	assert.False(t, got.replayed())
}

func TestAFailedRunAndItsReplay(t *testing.T) {
	declined := steps.WithCode("card_declined", steps.Permanent(errors.New("declined: s3cret")))
	shop, store := &shop{charge: func(context.Context, *orderRun) error { return declined }}, newStore()
	opts := []sagahttp.Option{sagahttp.WithFailures(map[string]int{"card_declined": http.StatusPaymentRequired})}
	for name, opts := range map[string][]sagahttp.Option{theKey: opts, "order-002": append(opts, sagahttp.WithMessages())} {
		first := serve(t, sagahttp.Handler(shop.on(t, store), usual, opts...)).post(t, name, theOrder)
		assert.Equal(t, http.StatusPaymentRequired, first.status)
		assert.Equal(t, "card_declined", first.problem(t).Code)
		sameAgain(t, first, serve(t, sagahttp.Handler(shop.on(t, store), usual, opts...)), name, theOrder)
	}
	assert.Zero(t, shop.total())
	assert.Equal(t, 2, shop.released)
	assert.NotContains(t, serve(t, sagahttp.Handler(shop.on(t, store), usual)).post(t, theKey, theOrder).body, "s3cret")
}

func TestAnInterruptedRunGoesOnWithTheSameRequest(t *testing.T) {
	down := true
	shop, store := &shop{charge: func(context.Context, *orderRun) error {
		if down {
			return errors.New("no route to s3cret.internal")
		}
		return nil
	}}, newStore()
	s := serve(t, sagahttp.Handler(shop.on(t, store), usual))
	got := s.post(t, theKey, theOrder)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Equal(t, "interrupted", got.slug(t))
	assert.Equal(t, "1", got.header.Get("Retry-After"))
	assert.NotContains(t, got.body, "s3cret")
	down = false
	got = s.post(t, theKey, theOrder)
	assert.Equal(t, http.StatusCreated, got.status)
	assert.False(t, got.replayed(), "something was done")
	assert.EqualValues(t, 1200, shop.total())
}

func TestAParticipantsRetryAfterReachesTheClient(t *testing.T) {
	shop := &shop{charge: func(context.Context, *orderRun) error { return steps.RetryAfter(90*time.Second, nil) }}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual))
	for range 2 {
		got := s.post(t, theKey, theOrder)
		assert.Equal(t, "interrupted", got.slug(t))
		assert.Contains(t, []string{"90", "89", "88"}, got.header.Get("Retry-After"))
	}
}

func TestABlockedRunIsNoReplayEvenTheSecondTime(t *testing.T) {
	refuse := func(context.Context, *orderRun) error { return steps.Permanent(errors.New("s3cret")) }
	shop := &shop{charge: refuse, release: refuse}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual))
	for range 2 {
		got := s.post(t, theKey, theOrder)
		assert.Equal(t, http.StatusInternalServerError, got.status)
		assert.Equal(t, "blocked", got.slug(t))
		assert.False(t, got.replayed(), "an operator can change it")
		assert.NotContains(t, got.body, "s3cret")
	}
}

func TestAReversedRun(t *testing.T) {
	shop := &shop{}
	o := shop.on(t, newStore())
	s := serve(t, sagahttp.Handler(o, usual))
	require.Equal(t, http.StatusCreated, s.post(t, theKey, theOrder).status)
	require.NoError(t, o.Reverse(t.Context(), saga.Key{Tenant: "tenant-a", ID: theKey}, "asked for"))
	got := s.post(t, theKey, theOrder)
	assert.Equal(t, http.StatusUnprocessableEntity, got.status)
	assert.Equal(t, "reversed", got.slug(t))
	assert.True(t, got.replayed())
}

func TestTheSameKeyWithOtherContent(t *testing.T) {
	shop := &shop{}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual))
	s.post(t, theKey, theOrder)
	got := s.post(t, theKey, `{"no":"order-001","amount":1201}`)
	assert.Equal(t, http.StatusUnprocessableEntity, got.status)
	assert.Equal(t, "key-reused", got.slug(t))
	assert.False(t, got.replayed())
	assert.EqualValues(t, 1200, shop.total())
}

func TestAChangedDefinition(t *testing.T) {
	shop, store := &shop{charge: func(context.Context, *orderRun) error { return errors.New("down") }}, newStore()
	serve(t, sagahttp.Handler(shop.on(t, store), usual)).post(t, theKey, theOrder)
	other, err := saga.New(saga.Define("checkout", saga.NoResult[order], steps.Do("something_else", func(context.Context, *orderRun) error { return nil })), store)
	require.NoError(t, err)
	got := serve(t, sagahttp.Handler(other, usual)).post(t, theKey, theOrder)
	assert.Equal(t, http.StatusInternalServerError, got.status)
	assert.Equal(t, "internal", got.slug(t))
	assert.NotContains(t, got.body, "reserve")
}

func TestAnInputOverTheStoresLimit(t *testing.T) {
	shop := &shop{}
	s := serve(t, sagahttp.Handler(shop.on(t, memory.New(memory.WithMaxRecord(600))), usual))
	big, err := json.Marshal(order{No: string(make([]byte, 4000)), Amount: 1})
	require.NoError(t, err)
	got := s.post(t, theKey, string(big))
	assert.Equal(t, http.StatusRequestEntityTooLarge, got.status)
	assert.Equal(t, "too-large", got.slug(t))
	assert.Zero(t, shop.total())
}

// brokenStore fails at every call.
type brokenStore struct{ state.Store }

func (brokenStore) Create(context.Context, *state.Record) (*state.Record, error) {
	return nil, errors.New("no route to s3cret.internal")
}

func TestAStoreThatCanNotBeReachedRunsNothing(t *testing.T) {
	shop := &shop{}
	got := serve(t, sagahttp.Handler(shop.on(t, brokenStore{newStore()}), usual)).post(t, theKey, theOrder)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Equal(t, "unavailable", got.slug(t))
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	assert.NotContains(t, got.body, "s3cret")
	assert.Zero(t, shop.total())
}

func TestManyRequestsWithOneKeyAtOnce(t *testing.T) {
	const clients = 24
	others := make(chan struct{}, clients)
	shop, store := &shop{charge: func(context.Context, *orderRun) error {
		<-others // at least one other client has had its answer while this run is at work
		return nil
	}}, newStore()
	a, b := serve(t, sagahttp.Handler(shop.on(t, store), usual)), serve(t, sagahttp.Handler(shop.on(t, store), usual))
	var wg sync.WaitGroup
	replies := make([]reply, clients)
	for i := range clients {
		wg.Go(func() {
			s := a
			if i%2 == 1 {
				s = b
			}
			got, err := s.send(context.Background(), theKey, theOrder)
			assert.NoError(t, err)
			replies[i] = got
			others <- struct{}{}
		})
	}
	wg.Wait()
	ran, busy := 0, 0
	for _, got := range replies {
		switch got.status {
		case http.StatusConflict:
			busy++
			assert.Equal(t, "in-progress", got.slug(t))
			assert.NotEmpty(t, got.header.Get("Retry-After"))
		default:
			assert.Equal(t, http.StatusCreated, got.status, got.body)
			assert.Equal(t, "{\"charge_id\":\"ch-order-001\"}\n", got.body)
			if !got.replayed() {
				ran++
			}
		}
	}
	assert.Equal(t, 1, ran)
	assert.NotZero(t, busy)
	assert.EqualValues(t, 1200, shop.total())
}

func TestPreferWait(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	shop := &shop{charge: func(context.Context, *orderRun) error {
		close(started)
		<-goOn
		return nil
	}}
	o := shop.on(t, newStore())
	s := serve(t, sagahttp.Handler(o, usual))
	impatient := serve(t, sagahttp.Handler(o, usual, sagahttp.WithMaxWait(0)))
	first := make(chan reply)
	go func() {
		got, err := s.send(context.Background(), theKey, theOrder)
		assert.NoError(t, err)
		first <- got
	}()
	<-started

	got := impatient.post(t, theKey, theOrder, header("Prefer", "wait=60"))
	assert.Equal(t, http.StatusConflict, got.status, "the server does not wait at all")
	assert.Empty(t, got.header.Get("Preference-Applied"))

	waiting := make(chan reply)
	go func() {
		got, err := s.send(context.Background(), theKey, theOrder, header("Prefer", "return=representation, wait=60"))
		assert.NoError(t, err)
		waiting <- got
	}()
	select {
	case got := <-waiting:
		t.Fatalf("it did not wait: %d %s", got.status, got.body)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	ran, waited := <-first, <-waiting
	assert.Equal(t, http.StatusCreated, waited.status)
	assert.Equal(t, ran.body, waited.body)
	assert.False(t, ran.replayed())
	assert.True(t, waited.replayed())
	assert.Equal(t, "wait=10", waited.header.Get("Preference-Applied"), "as long as the server allows")
}

func TestPreferWaitEnds(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	shop := &shop{charge: func(context.Context, *orderRun) error {
		close(started)
		<-goOn
		return nil
	}}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual, sagahttp.WithMaxWait(30*time.Millisecond)))
	first := make(chan reply)
	go func() {
		got, err := s.send(context.Background(), theKey, theOrder)
		assert.NoError(t, err)
		first <- got
	}()
	<-started
	got := s.post(t, theKey, theOrder, header("Prefer", "wait=1"))
	assert.Equal(t, http.StatusConflict, got.status)
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	close(goOn)
	assert.Equal(t, http.StatusCreated, (<-first).status)
}

// Results that are easily taken for none.
func TestResultsThatLookLikeNone(t *testing.T) {
	check(t, 0, "0\n")
	check(t, false, "false\n")
	check(t, "", "\"\"\n")
	check[*receipt](t, nil, "null\n")
	check[[]string](t, nil, "null\n")
	check(t, []string{}, "[]\n")
	check(t, steps.None{}, "null\n")
	check(t, map[string]any{"b": json.Number("9007199254740993"), "a": "<&>"}, `{"a":"\u003c\u0026\u003e","b":9007199254740993}`+"\n")
}

func check[Out any](t *testing.T, result Out, body string) {
	t.Helper()
	store, calls := newStore(), 0
	open := func() server {
		o, err := saga.New(saga.Once("checkout", func(context.Context, *orderRun) (Out, error) { calls++; return result, nil }), store)
		require.NoError(t, err)
		return serve(t, sagahttp.Handler(o, usual))
	}
	first := open().post(t, theKey, theOrder)
	assert.Equal(t, http.StatusCreated, first.status)
	assert.Equal(t, body, first.body)
	sameAgain(t, first, open(), theKey, theOrder)
	assert.Equal(t, 1, calls)
}

func TestAResultThatCanNotBeSent(t *testing.T) {
	h := sagahttp.Handler(fake[order, chan int](func(context.Context, saga.Key, order) (chan int, error) { return nil, nil }), usual)
	got := serve(t, h).post(t, theKey, theOrder)
	assert.Equal(t, http.StatusInternalServerError, got.status)
	assert.Equal(t, "internal", got.slug(t))
}

package checkout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/provider"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/shop"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

var (
	key   = saga.Key{Tenant: "demo", ID: "order-001"}
	order = checkout.Order{OrderNo: "order-001", SKU: "tea-100", Quantity: 2, Amount: 1200}
)

type orders = saga.Orchestrator[checkout.Order, checkout.Receipt]

// market is a checkout with real services around it.
type market struct {
	store    state.Store
	services checkout.Services
	books    map[string]*ledger.File
}

func newMarket(t *testing.T, mood provider.Mood) *market {
	t.Helper()
	dir := t.TempDir()
	m := &market{store: memory.New(), books: map[string]*ledger.File{}}
	for _, name := range []string{"provider", "stock", "points"} {
		m.books[name] = ledger.Open(filepath.Join(dir, name))
	}
	url, stop, err := provider.Serve(t.Context(), provider.New(m.books["provider"], mood))
	require.NoError(t, err)
	cards := checkout.NewHTTPCards(url)
	t.Cleanup(func() {
		cards.Close()
		assert.NoError(t, stop())
	})
	m.services = checkout.Services{Stock: shop.NewStock(m.books["stock"]), Cards: cards, Points: shop.NewPoints(m.books["points"])}
	return m
}

func (m *market) orders(t *testing.T, opts ...saga.Option) *orders {
	t.Helper()
	o, err := saga.New(checkout.New(m.services), m.store, append(opts, saga.WithErrors(checkout.Errors()))...)
	require.NoError(t, err)
	return o
}

// entries are the kinds of the entries in all books.
func (m *market) entries(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, book := range m.books {
		all, err := book.Entries()
		require.NoError(t, err)
		for _, e := range all {
			out[name] = append(out[name], e.Kind)
		}
	}
	return out
}

var paid = map[string][]string{"stock": {"reserve"}, "provider": {"charge"}, "points": {"grant"}}

func TestAnOrderIsMade(t *testing.T) {
	m := newMarket(t, provider.Mood{})
	o := m.orders(t)
	first, err := o.Run(t.Context(), key, order)
	require.NoError(t, err)
	assert.Equal(t, checkout.Receipt{OrderNo: "order-001", ChargeID: first.ChargeID, Points: 12}, first)
	again, err := o.Run(t.Context(), key, order)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Equal(t, paid, m.entries(t))

	rec, err := o.Get(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, checkout.Steps(), rec.Plan)
	require.Len(t, rec.Outbox.Messages, 1)
	message := rec.Outbox.Messages[0].Message
	assert.Equal(t, checkout.Topic, message.Topic)
	var body checkout.Created
	require.NoError(t, json.Unmarshal(message.Bytes(), &body))
	assert.Equal(t, checkout.Created{OrderNo: "order-001", ChargeID: first.ChargeID}, body)
}

// The process is not at hand here, so a step whose answer is lost stands for its death; main_test.go has real deaths.
func TestALostAnswerAtAnyStepChangesNothing(t *testing.T) {
	for _, step := range checkout.Steps() {
		t.Run(step, func(t *testing.T) {
			m := newMarket(t, provider.Mood{})
			lost := errors.New("the answer was lost")
			dying := m.orders(t, saga.WithRetry(steps.RetryPolicy{PerRun: 1}),
				saga.WithInterceptor(func(ctx context.Context, call saga.Call, next func(context.Context) error) error {
					if err := next(ctx); err != nil || call.Step != step {
						return err
					}
					return lost
				}))
			_, err := dying.Run(t.Context(), key, order)
			require.ErrorIs(t, err, saga.ErrInterrupted)
			require.ErrorIs(t, err, lost)

			receipt, err := m.orders(t).Run(t.Context(), key, order)
			require.NoError(t, err)
			assert.Equal(t, int64(12), receipt.Points)
			assert.Equal(t, paid, m.entries(t))
			rec, err := m.store.Get(t.Context(), "demo#create_order#order-001")
			require.NoError(t, err)
			assert.Len(t, rec.Outbox.Messages, 1)
		})
	}
}

func TestADeclineReleasesTheStock(t *testing.T) {
	m := newMarket(t, provider.Mood{Decline: true})
	for _, call := range []string{"first", "replay", "another process"} {
		_, err := m.orders(t).Run(t.Context(), key, order)
		require.ErrorIs(t, err, saga.ErrFailed, call)
		require.ErrorIs(t, err, checkout.ErrDeclined, call)
		var failed *saga.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, checkout.ChargeCard, failed.Step)
		assert.Empty(t, failed.NotUndone)
	}
	assert.Equal(t, map[string][]string{"stock": {"reserve", "release"}}, m.entries(t))
}

func TestALateChargeIsChargedOnce(t *testing.T) {
	m := newMarket(t, provider.Mood{Late: true})
	_, err := m.orders(t).Run(t.Context(), key, order)
	require.NoError(t, err)
	assert.Equal(t, paid, m.entries(t))
}

// Charged or not? Nobody has seen an answer to the first call, so the second one's refusal isn't the whole truth.
func TestAChargeThatNobodySawIsVoidedByItsKey(t *testing.T) {
	m := newMarket(t, provider.Mood{Late: true, Decline: true})
	_, err := m.orders(t).Run(t.Context(), key, order)
	require.ErrorIs(t, err, checkout.ErrDeclined)
	assert.Equal(t, map[string][]string{"stock": {"reserve", "release"}, "provider": {"void"}}, m.entries(t))
}

func TestAnOrderIsReversed(t *testing.T) {
	m := newMarket(t, provider.Mood{})
	o := m.orders(t)
	_, err := o.Run(t.Context(), key, order)
	require.NoError(t, err)
	require.NoError(t, o.Reverse(t.Context(), key, "returned by the customer"))
	assert.Equal(t, map[string][]string{"stock": {"reserve", "release"}, "provider": {"charge", "refund"}, "points": {"grant", "revoke"}}, m.entries(t))
	_, err = o.Run(t.Context(), key, order)
	require.ErrorIs(t, err, saga.ErrReversed)
}

func TestAProviderThatCantBeReachedInterrupts(t *testing.T) {
	m := newMarket(t, provider.Mood{})
	away := checkout.NewHTTPCards("http://127.0.0.1:1")
	t.Cleanup(away.Close)
	there := m.services.Cards
	m.services.Cards = away
	_, err := m.orders(t, saga.WithRetry(steps.RetryPolicy{PerRun: 1})).Run(t.Context(), key, order)
	require.ErrorIs(t, err, saga.ErrInterrupted)

	m.services.Cards = there
	_, err = m.orders(t).Run(t.Context(), key, order)
	require.NoError(t, err)
	assert.Equal(t, paid, m.entries(t))
}

func TestErrorsTellNoPayload(t *testing.T) {
	m := newMarket(t, provider.Mood{Decline: true})
	_, err := m.orders(t).Run(t.Context(), key, order)
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprint(err), "1200")
}

package page_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// What follows is the program of docs/testing.md.

type Order struct {
	OrderNo string `json:"order_no"`
	Amount  int64  `json:"amount"`
}

type Receipt struct {
	Charge string `json:"charge"`
}

type Cards interface {
	Charge(ctx context.Context, amount int64, key string) (string, error)
	Void(ctx context.Context, charge, key string) error
}

type Stock interface {
	Reserve(ctx context.Context, orderNo, key string) error
	Release(ctx context.Context, of, key string) error
}

type run = steps.Run[Order]

func NewCheckout(stock Stock, cards Cards) *saga.Definition[Order, Receipt] {
	reserve := steps.Do("reserve_stock", func(ctx context.Context, r *run) error {
		return stock.Reserve(ctx, r.Input.OrderNo, r.IdempotencyKey())
	}).Compensate(func(ctx context.Context, r *run, did steps.Outcome[steps.None]) error {
		return stock.Release(ctx, did.Key.String(), r.IdempotencyKey())
	})
	charge := steps.New("charge_card", func(ctx context.Context, r *run) (string, error) {
		return cards.Charge(ctx, r.Input.Amount, r.IdempotencyKey())
	}).Compensate(func(ctx context.Context, r *run, did steps.Outcome[string]) error {
		if !did.Known {
			return cards.Void(ctx, did.Key.String(), r.IdempotencyKey())
		}
		return cards.Void(ctx, did.Output, r.IdempotencyKey())
	})
	return saga.Define("create_order", func(_ context.Context, r *run) (Receipt, error) { return Receipt{charge.Output(r)}, nil }, reserve, charge)
}

type fakeStock struct{ rec *sagatest.Recorder }

func (s fakeStock) Reserve(ctx context.Context, orderNo, key string) error {
	_, err := s.rec.Effect(ctx, key, orderNo)
	return err
}

func (s fakeStock) Release(ctx context.Context, of, key string) error {
	return s.rec.Undo(ctx, key, of)
}

type fakeCards struct{ rec *sagatest.Recorder }

func (c fakeCards) Charge(ctx context.Context, amount int64, key string) (string, error) {
	return c.rec.Effect(ctx, key, amount) // the effect of one key, once
}

func (c fakeCards) Void(ctx context.Context, charge, key string) error {
	return c.rec.Undo(ctx, key, charge) // by the charge's id, or by its key
}

func TestCheckoutSurvives(t *testing.T) {
	sagatest.Crash(t, func(rec *sagatest.Recorder) *saga.Definition[Order, Receipt] {
		return NewCheckout(fakeStock{rec}, fakeCards{rec})
	}, saga.Key{Tenant: "tenant-a", ID: "order-001"}, Order{OrderNo: "order-001", Amount: 1200})
}

// The page shows these very lines.
func TestThePageAboutTestingIsThisCode(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "testing.md"))
	require.NoError(t, err)
	code, err := os.ReadFile("checkout_test.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```go\n")
	require.True(t, found)
	shown, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	for _, part := range strings.Split(shown, "\n\n") {
		assert.Contains(t, string(code), strings.TrimSpace(part))
	}
}

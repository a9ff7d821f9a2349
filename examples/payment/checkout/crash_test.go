package checkout_test

import (
	"context"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/internal/crashtest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The services as the crash lab sees them: everything that they do is in its recorder.

type labStock struct{ rec *sagatest.Recorder }

func (s labStock) Reserve(ctx context.Context, sku string, quantity int64, key string) (string, error) {
	return s.rec.Effect(ctx, key, []any{sku, quantity})
}

func (s labStock) Release(ctx context.Context, reserveKey, key string) error {
	return s.rec.Undo(ctx, key, reserveKey)
}

type labCards struct {
	rec     *sagatest.Recorder
	decline bool
}

func (c labCards) Charge(ctx context.Context, amount int64, key string) (checkout.Charge, error) {
	if c.decline {
		if err := c.rec.Call(ctx, key, amount); err != nil {
			return checkout.Charge{}, err
		}
		return checkout.Charge{}, steps.Permanent(steps.WithCode(checkout.CodeDeclined, checkout.ErrDeclined))
	}
	id, err := c.rec.Effect(ctx, key, amount)
	return checkout.Charge{ID: id}, err
}

func (c labCards) Refund(ctx context.Context, chargeID, key string) error {
	return c.rec.Undo(ctx, key, chargeID)
}

func (c labCards) VoidByKey(ctx context.Context, chargeKey, key string) error {
	return c.rec.Undo(ctx, key, chargeKey)
}

type labPoints struct{ rec *sagatest.Recorder }

func (p labPoints) Grant(ctx context.Context, points int64, key string) error {
	_, err := p.rec.Effect(ctx, key, points)
	return err
}

func (p labPoints) Revoke(ctx context.Context, grantKey, key string) error {
	return p.rec.Undo(ctx, key, grantKey)
}

func survives(t *testing.T, decline bool, opts ...sagatest.CrashOption) sagatest.CrashReport {
	t.Helper()
	return sagatest.Crash(t, func(rec *sagatest.Recorder) *saga.Definition[checkout.Order, checkout.Receipt] {
		return checkout.New(checkout.Services{Stock: labStock{rec}, Cards: labCards{rec, decline}, Points: labPoints{rec}})
	}, key, order, append(opts, sagatest.WithOptions(saga.WithErrors(checkout.Errors())))...)
}

func TestAnOrderSurvivesEveryCrash(t *testing.T) {
	crashtest.OnEachStore(t, func(t *testing.T, opts ...sagatest.CrashOption) sagatest.CrashReport {
		return survives(t, false, opts...)
	})
}

// Points and the message come after the card, so a decline reaches neither.
func TestADeclineSurvivesEveryCrash(t *testing.T) {
	crashtest.OnEachStore(t, func(t *testing.T, opts ...sagatest.CrashOption) sagatest.CrashReport {
		return survives(t, true, opts...)
	}, "do grant_points", "undo grant_points", "do notify")
}

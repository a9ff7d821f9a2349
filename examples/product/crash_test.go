package main

import (
	"context"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/internal/crashtest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
)

// The services as the crash lab sees them: everything that they do is in its recorder.

type labCatalog struct{ rec *sagatest.Recorder }

func (c labCatalog) Register(ctx context.Context, name, key string) (string, error) {
	return c.rec.Effect(ctx, key, name)
}

func (c labCatalog) Withdraw(ctx context.Context, registerKey, key string) error {
	return c.rec.Undo(ctx, key, registerKey)
}

type labPrices struct{ rec *sagatest.Recorder }

func (p labPrices) Set(ctx context.Context, productID string, price int64, key string) (int64, error) {
	return price, p.rec.Call(ctx, key, []any{productID, price})
}

func TestARegistrationSurvivesEveryCrash(t *testing.T) {
	crashtest.OnEachStore(t, func(t *testing.T, opts ...sagatest.CrashOption) sagatest.CrashReport {
		return sagatest.Crash(t, func(rec *sagatest.Recorder) *saga.Definition[product, listing] {
			return newRegistration(labCatalog{rec}, labPrices{rec})
		}, runKey("tea-100"), product{SKU: "tea-100", Name: "Green tea", Price: 1200}, opts...)
	})
}

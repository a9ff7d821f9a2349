package main

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// product is the request.
type product struct {
	SKU   string `json:"sku"`
	Name  string `json:"name"`
	Price int64  `json:"price"`
}

// listing is the result.
type listing struct {
	ProductID string `json:"product_id"`
	Price     int64  `json:"price"`
}

// catalog registers products. The same key registers once.
type catalog interface {
	Register(ctx context.Context, name, key string) (productID string, err error)
	// Withdraw removes the product that was registered under registerKey. If none was, it closes that key.
	Withdraw(ctx context.Context, registerKey, key string) error
}

// prices sets the prices of products.
type prices interface {
	Set(ctx context.Context, productID string, price int64, key string) (int64, error)
}

type run = steps.Run[product] // short for signatures

// newRegistration declares the saga. Everyone's first version of it calls the two services one after the other, and
// leaves a product without a price behind when the second call fails, or a second product when the request is repeated.
func newRegistration(c catalog, p prices) *saga.Definition[product, listing] {
	registered := steps.New("product_registered", func(ctx context.Context, r *run) (string, error) {
		return c.Register(ctx, r.Input.Name, r.IdempotencyKey())
	}).
		Compensate(func(ctx context.Context, r *run, did steps.Outcome[string]) error {
			return c.Withdraw(ctx, did.Key.String(), r.IdempotencyKey()) // by the key, which is known even when the product's ID is not
		})

	priced := steps.New("price_set", func(ctx context.Context, r *run) (int64, error) {
		return p.Set(ctx, registered.Output(r), r.Input.Price, r.IdempotencyKey())
	}).
		// Three attempts are the default. One shows the interruption sooner.
		Retry(steps.RetryPolicy{PerRun: 1})

	result := func(_ context.Context, r *run) (listing, error) {
		return listing{ProductID: registered.Output(r), Price: priced.Output(r)}, nil
	}
	return saga.Define("register_product", result, registered, priced)
}

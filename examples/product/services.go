package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/steps"
)

// productCatalog stands for a service that registers products.
type productCatalog struct {
	products map[string]string // product IDs by the key that the call carried; empty: withdrawn
}

// Register adds a product and returns its ID.
func (c *productCatalog) Register(_ context.Context, name, key string) (string, error) {
	id, known := c.products[key]
	switch {
	case known && id == "":
		return "", steps.Permanent(errWithdrawn)
	case !known:
		id = fmt.Sprintf("P-%d", len(c.products)+1)
		c.products[key] = id
	}
	fmt.Printf("   catalog  register %q: it is %s\n", name, id)
	return id, nil
}

// Withdraw removes the product that was registered under that key, and lets none be registered under it any more.
func (c *productCatalog) Withdraw(_ context.Context, registerKey, _ string) error {
	c.products[registerKey] = ""
	return nil
}

// priceService stands for a service that is down now and then.
type priceService struct {
	down bool
}

var (
	_ catalog = (*productCatalog)(nil)
	_ prices  = (*priceService)(nil)

	errDown      = errors.New("503 from the price service")
	errWithdrawn = errors.New("the product was withdrawn")
)

// Set sets a product's price. Setting it twice is as good as once, so the key is not needed here.
func (p *priceService) Set(_ context.Context, productID string, price int64, _ string) (int64, error) {
	if p.down {
		fmt.Printf("   prices   set %s to %d: 503, try later\n", productID, price)
		return 0, errDown // neither Permanent nor RetryAfter: worth another try
	}
	fmt.Printf("   prices   set %s to %d: done\n", productID, price)
	return price, nil
}

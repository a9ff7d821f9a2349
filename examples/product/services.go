package main

import (
	"context"
	"errors"
	"fmt"
)

// catalog stands for a service that registers products. The same key registers once.
type catalog struct {
	products map[string]string // product IDs by the key that the call carried
}

// Register adds a product and returns its ID.
func (c *catalog) Register(_ context.Context, name, key string) (string, error) {
	id, known := c.products[key]
	if !known {
		id = fmt.Sprintf("P-%d", len(c.products)+1)
		c.products[key] = id
	}
	fmt.Printf("   catalog  register %q: it is %s\n", name, id)
	return id, nil
}

// Withdraw removes the product that was registered under that key, if there is one.
func (c *catalog) Withdraw(_ context.Context, key string) error {
	delete(c.products, key)
	return nil
}

// prices stands for a service that is down now and then.
type prices struct {
	down bool
}

var errDown = errors.New("503 from the price service")

// Set sets a product's price. Setting it twice is as good as once, so the key is not needed here.
func (p *prices) Set(_ context.Context, productID string, price int64, _ string) (int64, error) {
	if p.down {
		fmt.Printf("   prices   set %s to %d: 503, try later\n", productID, price)
		return 0, errDown // neither Permanent nor RetryAfter: worth another try
	}
	fmt.Printf("   prices   set %s to %d: done\n", productID, price)
	return price, nil
}

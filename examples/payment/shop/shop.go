// Package shop is the shop's own services: stock and points. They keep their books in ledger files, and treat a key as
// every participant of a saga should: the same key again changes nothing, and a key that was closed can't be used any more.
package shop

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Stock keeps pieces for orders.
type Stock struct{ books *ledger.File }

// Points are granted to customers.
type Points struct{ books *ledger.File }

var (
	_ checkout.Stock  = (*Stock)(nil)
	_ checkout.Points = (*Points)(nil)
)

// NewStock returns the stock service with these books.
func NewStock(books *ledger.File) *Stock { return &Stock{books} }

// NewPoints returns the points service with these books.
func NewPoints(books *ledger.File) *Points { return &Points{books} }

// Reserve keeps pieces.
func (s *Stock) Reserve(_ context.Context, sku string, quantity int64, key string) (string, error) {
	return enter(s.books, ledger.Entry{Kind: "reserve", ID: ledger.ID("rs", key), What: sku, Amount: quantity}, key)
}

// Release gives back what was reserved under reserveKey, or closes that key.
func (s *Stock) Release(_ context.Context, reserveKey, key string) error {
	return undo(s.books, "release", reserveKey, key)
}

// Grant grants points.
func (p *Points) Grant(_ context.Context, points int64, key string) error {
	_, err := enter(p.books, ledger.Entry{Kind: "grant", ID: ledger.ID("pt", key), What: "points", Amount: points}, key)
	return err
}

// Revoke takes back what was granted under grantKey, or closes that key.
func (p *Points) Revoke(_ context.Context, grantKey, key string) error {
	return undo(p.books, "revoke", grantKey, key)
}

var errClosed = errors.New("its key was closed by a compensation")

func enter(books *ledger.File, entry ledger.Entry, key string) (string, error) {
	e, _, err := books.Once(key, func(past []ledger.Entry) (ledger.Entry, error) {
		if _, closed := ledger.Undone(past, key); closed {
			// A call that was late: the run has gone backwards meanwhile, and nobody would undo this any more.
			return ledger.Entry{}, steps.Permanent(fmt.Errorf("%s %s: %w", entry.Kind, entry.What, errClosed))
		}
		return entry, nil
	})
	return e.ID, err
}

func undo(books *ledger.File, kind, of, key string) error {
	_, _, err := books.Once(key, func(past []ledger.Entry) (ledger.Entry, error) {
		done, _ := ledger.Find(past, of) // if it was never done, nothing comes back and the key is closed all the same
		return ledger.Entry{Kind: kind, ID: done.ID, What: done.What, Amount: done.Amount, Of: of}, nil
	})
	return err
}

package main

import (
	"context"
	"errors"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/provider"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/shop"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// world is what the saga needs around it: a store, a relay for what it leaves there, and the services.
type world struct {
	store    state.Store
	relay    *outbox.Relay
	services checkout.Services
	closers  []func() error
}

// open opens the store and the services' books, and starts a payment provider unless there is one already.
func open(ctx context.Context, o options) (_ *world, err error) {
	w := &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	var closeStore func() error
	if w.store, closeStore, err = o.openStore(ctx); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, closeStore)
	if w.relay, err = o.openRelay(ctx, w.store); err != nil {
		return nil, err
	}

	url := o.provider
	if url == "" {
		var stop func() error
		h := provider.New(o.books(providerBooks), provider.Mood{Decline: o.decline, Late: o.timeout})
		if url, stop, err = provider.Serve(ctx, h); err != nil {
			return nil, err
		}
		w.closers = append(w.closers, stop)
	}
	cards := checkout.NewHTTPCards(url)
	w.closers = append(w.closers, func() error { cards.Close(); return nil })
	w.services = checkout.Services{
		Stock:  shop.NewStock(o.books(stockBooks)),
		Cards:  cards,
		Points: shop.NewPoints(o.books(pointsBooks)),
	}
	return w, nil
}

// openStore opens where runs are recorded.
func (o options) openStore(ctx context.Context) (_ state.Store, closeIt func() error, err error) {
	if o.store == onDynamoDB {
		s, err := o.openTable(ctx)
		return s, func() error { return nil }, err
	}
	s, err := sqlite.Open(ctx, o.db)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// close closes everything, what was opened last first.
func (w *world) close() (err error) {
	for i := len(w.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, w.closers[i]())
	}
	w.closers = nil
	return err
}

// The names of the services' books.
const (
	providerBooks = "provider"
	stockBooks    = "stock"
	pointsBooks   = "points"
)

func (o options) books(service string) *ledger.File {
	return ledger.Open(o.db + "." + service + ".jsonl")
}

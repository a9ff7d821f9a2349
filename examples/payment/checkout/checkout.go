// Package checkout is the saga of the example: an order reserves stock, charges a card, grants points and tells the world.
// It knows nothing of stores and processes, so that the program, its tests and whoever else runs checkouts share it.
package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Operation is the saga's name, and so a part of every run's key.
const Operation = "create_order"

// The steps, in their order.
const (
	ReserveStock = "reserve_stock"
	ChargeCard   = "charge_card"
	GrantPoints  = "grant_points"
	Notify       = "notify"
)

// Steps are the names of the steps, in their order.
func Steps() []string { return []string{ReserveStock, ChargeCard, GrantPoints, Notify} }

// Topic of the message that a completed order leaves in the outbox.
const Topic = "order-created"

// Order is the request.
type Order struct {
	OrderNo  string `json:"order_no"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Amount   int64  `json:"amount"`
}

// Receipt is the result.
type Receipt struct {
	OrderNo  string `json:"order_no"`
	ChargeID string `json:"charge_id"`
	Points   int64  `json:"points"`
}

// Created is the body of the message.
type Created struct {
	OrderNo  string `json:"order_no"`
	ChargeID string `json:"charge_id"`
}

// Services are what a checkout calls. Each call carries a key, and the same key again must do nothing a second time.
type Services struct {
	Stock  Stock
	Cards  Cards
	Points Points
}

// Stock keeps pieces for an order.
type Stock interface {
	Reserve(ctx context.Context, sku string, quantity int64, key string) (reservationID string, err error)
	// Release gives back what was reserved under reserveKey. If nothing was, it closes that key.
	Release(ctx context.Context, reserveKey, key string) error
}

// Cards charges cards. [HTTPCards] is one.
type Cards interface {
	// Charge fails with ErrDeclined when the card's bank says no.
	Charge(ctx context.Context, amount int64, key string) (Charge, error)
	Refund(ctx context.Context, chargeID, key string) error
	// VoidByKey undoes what was charged under chargeKey. If nothing was, it closes that key.
	VoidByKey(ctx context.Context, chargeKey, key string) error
}

// Points are granted to customers.
type Points interface {
	Grant(ctx context.Context, points int64, key string) error
	// Revoke takes back what was granted under grantKey. If nothing was, it closes that key.
	Revoke(ctx context.Context, grantKey, key string) error
}

// Charge is what the step charge_card records.
type Charge struct {
	ID string `json:"id"`
}

// ErrDeclined is the error of an order whose card was declined: now, on a replay, and in every other process.
var ErrDeclined = errors.New("the card was declined")

// Errors are what the codes of this saga stand for, for saga.WithErrors.
func Errors() map[string]error { return map[string]error{CodeDeclined: ErrDeclined} }

// CodeDeclined is the code of the failure of an order whose card was declined.
const CodeDeclined = "card_declined"

// chargeTimeout is how long an answer of the payment provider is waited for.
const chargeTimeout = 3 * time.Second

type run = steps.Run[Order] // short for signatures

// New declares the saga.
func New(s Services) *saga.Definition[Order, Receipt] {
	reserve := steps.New(ReserveStock, func(ctx context.Context, r *run) (string, error) {
		return s.Stock.Reserve(ctx, r.Input.SKU, r.Input.Quantity, r.IdempotencyKey())
	}).
		Compensate(func(ctx context.Context, r *run, did steps.Outcome[string]) error {
			return s.Stock.Release(ctx, did.Key.String(), r.IdempotencyKey())
		})

	charge := steps.New(ChargeCard, func(ctx context.Context, r *run) (Charge, error) {
		// The derived key makes a second call after a crash harmless.
		return s.Cards.Charge(ctx, r.Input.Amount, r.IdempotencyKey())
	}).
		Compensate(func(ctx context.Context, r *run, did steps.Outcome[Charge]) error {
			if !did.Known { // nobody knows whether it was charged: void by the key that the charge carried
				return s.Cards.VoidByKey(ctx, did.Key.String(), r.IdempotencyKey())
			}
			return s.Cards.Refund(ctx, did.Output.ID, r.IdempotencyKey())
		}).
		Timeout(chargeTimeout)

	grant := steps.New(GrantPoints, func(ctx context.Context, r *run) (int64, error) {
		points := r.Input.Amount / 100
		return points, s.Points.Grant(ctx, points, r.IdempotencyKey())
	}).
		Compensate(func(ctx context.Context, r *run, did steps.Outcome[int64]) error {
			return s.Points.Revoke(ctx, did.Key.String(), r.IdempotencyKey())
		})

	notify := steps.Do(Notify, func(_ context.Context, r *run) error {
		// Not sent here: it is stored by the very write that records this step, and a relay sends it afterwards.
		r.Emit(outbox.Message{
			Topic: Topic,
			Key:   r.Input.OrderNo,
			Type:  "order.created",
			Body:  Created{OrderNo: r.Input.OrderNo, ChargeID: charge.Output(r).ID},
		})
		return nil
	}).
		NoCompensation() // a message that isn't recorded is never sent

	receipt := func(_ context.Context, r *run) (Receipt, error) {
		return Receipt{OrderNo: r.Input.OrderNo, ChargeID: charge.Output(r).ID, Points: grant.Output(r)}, nil
	}
	return saga.Define(Operation, receipt, reserve, charge, grant, notify)
}

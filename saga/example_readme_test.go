package saga_test

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// README.md shows what stands between the two marks; a test compares them.
// readme:begin

type Order struct {
	OrderNo string `json:"order_no"`
	Amount  int64  `json:"amount"`
}

type run = steps.Run[Order] // short for signatures

func NewCheckout(stock *Stock, cards *Cards) *saga.Definition[Order, Receipt] {
	reserve := steps.New("reserve_stock", stock.Reserve).
		Compensate(stock.Release)
	charge := steps.New("charge_card", func(ctx context.Context, r *run) (Charge, error) {
		// The derived key makes a second call after a crash harmless.
		return cards.Charge(ctx, r.Input.Amount, r.IdempotencyKey())
	}).
		Compensate(func(ctx context.Context, r *run, did steps.Outcome[Charge]) error {
			if !did.Known { // nobody knows whether it was charged: void by the key that the charge carried
				return cards.VoidByKey(ctx, did.Key.String(), r.IdempotencyKey())
			}
			return cards.Refund(ctx, did.Output.ID, r.IdempotencyKey())
		}).
		Timeout(10 * time.Second)
	notify := steps.Do("notify", func(_ context.Context, r *run) error {
		r.Emit(outbox.Message{Topic: "order-created", Key: r.Input.OrderNo, Body: charge.Output(r)})
		return nil
	})
	return saga.Define("create_order", receipt(charge), reserve, charge, notify)
}

func receipt(charge *steps.Step[Order, Charge]) func(context.Context, *run) (Receipt, error) {
	return func(_ context.Context, r *run) (Receipt, error) {
		return Receipt{OrderNo: r.Input.OrderNo, ChargeID: charge.Output(r).ID}, nil
	}
}

func pay(ctx context.Context, store state.Store, stock *Stock, cards *Cards, logger *zap.Logger, order Order) (Receipt, error) {
	checkout, err := saga.New(NewCheckout(stock, cards), store, saga.WithLogger(logger)) // once, when the program starts
	if err != nil {
		return Receipt{}, err
	}
	return checkout.Run(ctx, saga.Key{Tenant: "tenant-a", ID: order.OrderNo}, order)
}

// readme:end

type Charge struct {
	ID string `json:"id"`
}

type Receipt struct {
	OrderNo  string `json:"order_no"`
	ChargeID string `json:"charge_id"`
}

type Reservation struct {
	Quantity int `json:"quantity"`
}

// Stock stands for the client of a stock service.
type Stock struct{ reserved map[string]int }

func (s *Stock) Reserve(_ context.Context, r *run) (Reservation, error) {
	s.reserved[r.IdempotencyKey()] = 1 // the same key reserves once
	return Reservation{Quantity: 1}, nil
}

func (s *Stock) Release(_ context.Context, _ *run, did steps.Outcome[Reservation]) error {
	delete(s.reserved, did.Key.String())
	return nil
}

// Cards stands for the client of a payment provider that honours idempotency keys.
type Cards struct{ charged map[string]int64 }

func (c *Cards) Charge(_ context.Context, amount int64, key string) (Charge, error) {
	c.charged[key] = amount
	return Charge{ID: "ch_" + steps.DerivedKey(key).Hashed(16)}, nil
}

func (c *Cards) Refund(_ context.Context, _, _ string) error { return nil }

func (c *Cards) VoidByKey(_ context.Context, chargeKey, _ string) error {
	delete(c.charged, chargeKey)
	return nil
}

// A checkout that reserves, charges and notifies, each step at most once in effect.
func Example() {
	ctx, store := context.Background(), memory.New()
	stock, cards := &Stock{map[string]int{}}, &Cards{map[string]int64{}}
	order := Order{OrderNo: "order-001", Amount: 1200}

	first, err := pay(ctx, store, stock, cards, zap.NewNop(), order)
	fmt.Println(first.OrderNo, err)
	again, err := pay(ctx, store, stock, cards, zap.NewNop(), order)
	fmt.Println(again == first, err)
	for key, amount := range cards.charged {
		fmt.Println(key, amount)
	}
	// Output:
	// order-001 <nil>
	// true <nil>
	// tenant-a#create_order#order-001/charge_card 1200
}

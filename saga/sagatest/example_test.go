package sagatest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

type Order struct{ Amount int64 }

type Reservation struct{ ID string }

type Charge struct{ ID, Reservation string }

var reserve = steps.New("reserve_stock", func(context.Context, *steps.Run[Order]) (Reservation, error) {
	return Reservation{ID: "from the warehouse"}, nil
})

var charge = steps.New("charge_card", func(_ context.Context, r *steps.Run[Order]) (Charge, error) {
	fmt.Println("charging", r.Input.Amount, "under", r.IdempotencyKey())
	r.Emit(outbox.Message{Topic: "charged", Body: r.Input.Amount})
	return Charge{ID: "c-1", Reservation: reserve.Output(r).ID}, nil
}).Compensate(func(_ context.Context, r *steps.Run[Order], did steps.Outcome[Charge]) error {
	if !did.Known {
		fmt.Println("voiding", did.Key)
		return nil
	}
	fmt.Println("refunding", did.Output.ID, "under", r.IdempotencyKey())
	return nil
})

// A step is tested by itself: what the steps before it gave is given.
func ExampleDo() {
	t := &testing.T{} // stands for the one of your test
	r := sagatest.NewRun(t, saga.Key{Operation: "create_order", ID: "1"}, charge, Order{Amount: 1200},
		sagatest.Given(reserve, Reservation{ID: "r-1"}))
	out, err := sagatest.Do(context.Background(), r)
	fmt.Println(out, err)
	for _, m := range sagatest.Emitted(r) {
		fmt.Printf("%s %s %s\n", m.ID, m.Topic, m.Body)
	}
	// Output:
	// charging 1200 under #create_order#1/charge_card
	// {c-1 r-1} <nil>
	// #create_order#1/charge_card/0 charged 1200
}

// A compensation is worth two tests: of a step that is done, and of one of which nobody knows whether it happened.
func ExampleUndo() {
	t := &testing.T{} // stands for the one of your test
	r := sagatest.NewRun(t, saga.Key{Operation: "create_order", ID: "1"}, charge, Order{Amount: 1200})
	fmt.Println(sagatest.Undo(context.Background(), r, steps.Outcome[Charge]{Known: true, Output: Charge{ID: "c-1"}}))
	fmt.Println(sagatest.Undo(context.Background(), r, steps.Outcome[Charge]{}))
	// Output:
	// refunding c-1 under #create_order#1/charge_card/compensate
	// <nil>
	// voiding #create_order#1/charge_card
	// <nil>
}

// A test moves the clock, and waits for nothing.
func ExampleClock() {
	var clk sagatest.Clock
	clk.AutoAdvance()
	tries := 0
	d := saga.Once("flaky", func(context.Context, *steps.Run[Order]) (int, error) {
		if tries++; tries < 3 {
			return 0, steps.RetryAfter(10*time.Second, nil)
		}
		return tries, nil
	})
	o, err := saga.New(d, memory.New(memory.WithClock(&clk)), saga.WithClock(&clk))
	if err != nil {
		panic(err)
	}
	began := clk.Now()
	fmt.Println(o.Run(context.Background(), saga.Key{ID: "1"}, Order{}))
	fmt.Println(clk.Now().Sub(began))
	// Output:
	// 3 <nil>
	// 20s
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Before the pivot a failure undoes what was done. From the pivot on there is no way back: a step that fails for good
// leaves the run to an operator.
func Example_pivot() {
	ctx := context.Background()
	refused := steps.Permanent(errors.New("refused"))
	var fails string
	step := func(name string) *steps.Step[string, steps.None] {
		return steps.Do(name, func(context.Context, *steps.Run[string]) error {
			if name == fails {
				return refused
			}
			return nil
		})
	}
	reserve := step("reserve").Compensate(func(context.Context, *steps.Run[string], steps.Outcome[steps.None]) error {
		fmt.Println("reservation undone")
		return nil
	})
	ship := step("ship").Pivot() // what is on its way can't be called back
	invoice := step("invoice")
	orders, err := saga.New(saga.Define("order", saga.NoResult, reserve, ship, invoice), memory.New())
	if err != nil {
		panic(err)
	}
	fails = "ship"
	_, err = orders.Run(ctx, saga.Key{ID: "1"}, "tea")
	fmt.Println("failed:", errors.Is(err, saga.ErrFailed))
	fails = "invoice"
	_, err = orders.Run(ctx, saga.Key{ID: "2"}, "tea")
	fmt.Println("blocked:", errors.Is(err, saga.ErrBlocked))
	// Output:
	// reservation undone
	// failed: true
	// blocked: true
}

// A step with a When runs only if that says so, once and for all. Later steps read its result by Lookup.
func Example_when() {
	ctx := context.Background()
	discount := steps.New("discount", func(context.Context, *steps.Run[int64]) (int64, error) { return 10, nil }).
		When(func(r *steps.Run[int64]) bool { return r.Input >= 100 })
	bill := steps.New("bill", func(_ context.Context, r *steps.Run[int64]) (int64, error) {
		percent, _ := discount.Lookup(r) // Output would fail the step when there was no discount
		return r.Input - r.Input*percent/100, nil
	})
	bills, err := saga.New(saga.Define("bill", func(_ context.Context, r *steps.Run[int64]) (int64, error) {
		return bill.Output(r), nil
	}, discount, bill), memory.New())
	if err != nil {
		panic(err)
	}
	fmt.Println(bills.Run(ctx, saga.Key{ID: "1"}, 200))
	fmt.Println(bills.Run(ctx, saga.Key{ID: "2"}, 50))
	rec, err := bills.Get(ctx, saga.Key{ID: "2"})
	fmt.Println(rec.Steps[0].Status, err)
	// Output:
	// 180 <nil>
	// 50 <nil>
	// SKIPPED <nil>
}

// A participant without idempotency keys is called at most once. When the one call gives no answer, Probe finds out
// whether it was heard; without a Probe the run would be blocked.
func Example_atMostOnce() {
	ctx := context.Background()
	var sent []string // what the bank has received
	transfer := steps.New("transfer", func(_ context.Context, r *steps.Run[string]) (string, error) {
		sent = append(sent, r.Input)
		return "", errors.New("connection reset") // it arrived, and the answer did not
	}).
		AtMostOnce().
		Probe(func(_ context.Context, r *steps.Run[string]) (string, bool, error) {
			for _, s := range sent {
				if s == r.Input {
					return "transfer of " + s, true, nil
				}
			}
			return "", false, nil
		})
	transfers, err := saga.New(saga.Define("pay_supplier", func(_ context.Context, r *steps.Run[string]) (string, error) {
		return transfer.Output(r), nil
	}, transfer), memory.New())
	if err != nil {
		panic(err)
	}
	fmt.Println(transfers.Run(ctx, saga.Key{ID: "1"}, "invoice-9"))
	fmt.Println(len(sent))
	// Output:
	// transfer of invoice-9 <nil>
	// 1
}

// Transient errors are tried again within a run, with the same key; then the run is interrupted, and the same key goes on.
func Example_retry() {
	ctx := context.Background()
	flaky := steps.Do("call", func(_ context.Context, r *steps.Run[int]) error {
		fmt.Println("attempt", r.Attempt(), r.IdempotencyKey())
		if r.Attempt() < 3 {
			return errors.New("503")
		}
		return nil
	}).
		Retry(steps.RetryPolicy{Initial: time.Millisecond, PerRun: 2})
	calls, err := saga.New(saga.Define("calls", saga.NoResult, flaky), memory.New())
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, err := calls.Run(ctx, saga.Key{ID: "1"}, 1)
		fmt.Println("interrupted:", errors.Is(err, saga.ErrInterrupted))
	}
	// Output:
	// attempt 1 #calls#1/call
	// attempt 2 #calls#1/call
	// interrupted: true
	// attempt 3 #calls#1/call
	// interrupted: false
}

// A participant that says when to come back is not called before, whoever asks.
func Example_retryAfter() {
	ctx, calls := context.Background(), 0
	limited, err := saga.New(saga.Once("limited", func(context.Context, *steps.Run[int]) (int, error) {
		calls++
		return 0, steps.RetryAfter(time.Hour, errors.New("429"))
	}), memory.New())
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, err := limited.Run(ctx, saga.Key{ID: "1"}, 1)
		var stopped *saga.Error
		if errors.As(err, &stopped) {
			fmt.Println(errors.Is(err, saga.ErrInterrupted), stopped.RetryAfter.Round(time.Minute), "calls:", calls)
		}
	}
	// Output:
	// true 1h0m0s calls: 1
	// true 1h0m0s calls: 1
}

// A code survives storage, and WithErrors names the error behind it: a replay in another process is the same error.
func ExampleWithErrors() {
	ctx, store := context.Background(), memory.New()
	errDeclined := errors.New("card declined")
	charge := saga.Once("charge", func(context.Context, *steps.Run[int64]) (string, error) {
		return "", steps.Permanent(steps.WithCode("card_declined", errDeclined))
	})
	for range 2 {
		process, err := saga.New(charge, store, saga.WithErrors(map[string]error{"card_declined": errDeclined}))
		if err != nil {
			panic(err)
		}
		_, err = process.Run(ctx, saga.Key{ID: "1"}, 1200)
		fmt.Println(errors.Is(err, saga.ErrFailed), errors.Is(err, errDeclined))
	}
	// Output:
	// true true
	// true true
}

// A message is recorded by the very write that makes its step done. A relay sends it afterwards; here it is only looked at.
func Example_emit() {
	ctx := context.Background()
	orders, err := saga.New(saga.Once("order", func(_ context.Context, r *steps.Run[string]) (string, error) {
		r.Emit(outbox.Message{Topic: "order-created", Key: r.Input, Body: map[string]string{"sku": r.Input}})
		return "ok", nil
	}), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "order-1"}
	fmt.Println(orders.Run(ctx, key, "tea-100"))
	rec, err := orders.Get(ctx, key)
	if err != nil {
		panic(err)
	}
	for _, m := range rec.Outbox.Messages {
		fmt.Printf("%s to %s: %s\n", m.ID, m.Topic, m.Bytes())
	}
	// Output:
	// ok <nil>
	// #order#order-1/order/0 to order-created: {"sku":"tea-100"}
}

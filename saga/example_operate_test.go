package saga_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A blocked run waits for a person, who needs no definitions: only the store. What was done is on record.
func ExampleOperator() {
	ctx, store := context.Background(), memory.New()
	ship := steps.Do("ship", func(context.Context, *steps.Run[string]) error { return nil }).Pivot()
	invoice := steps.New("invoice", func(context.Context, *steps.Run[string]) (string, error) {
		return "", steps.Permanent(errors.New("unknown tax number"))
	})
	orders, err := saga.New(saga.Define("order", func(_ context.Context, r *steps.Run[string]) (string, error) {
		return invoice.Output(r), nil
	}, ship, invoice), store)
	if err != nil {
		panic(err)
	}
	_, err = orders.Run(ctx, saga.Key{ID: "1"}, "tea")
	fmt.Println("blocked:", errors.Is(err, saga.ErrBlocked))

	// Another program, on the same store.
	desk := saga.NewOperator(store)
	for rec, err := range desk.Runs(ctx, state.Query{Statuses: []state.Status{state.StatusBlocked}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(rec.Key, "at", rec.CurrentStep+":", rec.Failure.Message)
	}
	key := saga.Key{Operation: "order", ID: "1"} // an operator's key names the operation
	fmt.Println(desk.MarkDone(saga.ActorContext(ctx, "ann"), key, "invoice", "INV-7", "written by hand"))

	// The verbs run nothing. The next call, or recovery, goes on behind the step.
	fmt.Println(orders.Run(ctx, saga.Key{ID: "1"}, "tea"))
	rec, err := desk.Get(ctx, key)
	fmt.Println(rec.Audit[0].Actor, rec.Audit[0].Verb, rec.Audit[0].Step, rec.Audit[0].Note, err)
	// Output:
	// blocked: true
	// #order#1 at invoice: unknown tax number
	// <nil>
	// INV-7 <nil>
	// ann mark_done invoice written by hand <nil>
}

// Recover takes up what nobody is at work on: runs whose process died, and runs that were interrupted.
// A service calls RecoverLoop in a goroutine, with all its orchestrators.
func ExampleRecover() {
	ctx, reachable := context.Background(), false
	trips, err := saga.New(booking(&reachable), memory.New())
	if err != nil {
		panic(err)
	}
	_, err = trips.Run(ctx, saga.Key{ID: "trip-1"}, "Kyoto")
	fmt.Println("interrupted:", errors.Is(err, saga.ErrInterrupted))

	reachable = true
	sum, err := saga.Recover(ctx, trips)
	fmt.Printf("%+v %v\n", sum, err)
	// Output:
	// hotel booked
	// interrupted: true
	// train booked
	// {Completed:1 Failed:0 Interrupted:0 Blocked:0 Lost:0} <nil>
}

// An interceptor stands around every call of a step, a compensation or a probe: for spans, rate limits, or failures on
// purpose.
func ExampleWithInterceptor() {
	ctx, reachable := context.Background(), true
	trace := func(ctx context.Context, call saga.Call, next func(context.Context) error) error {
		fmt.Println("begin", call.Phase, call.Step, call.IdempotencyKey)
		err := next(ctx)
		fmt.Println("end", err)
		return err
	}
	trips, err := saga.New(booking(&reachable), memory.New(), saga.WithInterceptor(trace))
	if err != nil {
		panic(err)
	}
	_, err = trips.Run(ctx, saga.Key{ID: "trip-1"}, "Kyoto")
	fmt.Println(err)
	// Output:
	// begin do book_hotel #book_trip#trip-1/book_hotel
	// hotel booked
	// end <nil>
	// begin do book_train #book_trip#trip-1/book_train
	// train booked
	// end <nil>
	// <nil>
}

// A listener is told what happens, for metrics and logs. Any of its functions may be left out.
func ExampleWithListener() {
	ctx := context.Background()
	count := map[string]int{}
	trips, err := saga.New(booking(new(bool)), memory.New(), saga.WithListener(saga.Listener{
		StepDone:       func(_ context.Context, e saga.StepEvent) { count["done "+e.Step]++ },
		RunInterrupted: func(context.Context, saga.RunEvent) { count["interrupted"]++ },
		RunFailed:      func(context.Context, saga.RunEvent) { count["failed"]++ },
	}))
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "trip-1"}
	_, err = trips.Run(ctx, key, "Kyoto")
	fmt.Println("interrupted:", errors.Is(err, saga.ErrInterrupted))
	fmt.Println(trips.Cancel(ctx, key, "changed my mind"))
	fmt.Println(count)
	// Output:
	// hotel booked
	// interrupted: true
	// train cancelled; it is known to have been booked: false
	// hotel cancelled: cancelled: changed my mind
	// <nil>
	// map[done book_hotel:1 failed:1 interrupted:1]
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// An idempotent function in one line: the same key runs it once.
func ExampleOnce() {
	ctx := context.Background()
	welcome, err := saga.New(saga.Once("send_welcome", func(_ context.Context, r *steps.Run[string]) (string, error) {
		fmt.Println("sending mail to", r.Input)
		return "mail-1", nil
	}), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{Tenant: "tenant-a", ID: "customer-7"}
	fmt.Println(welcome.Run(ctx, key, "ann@example.com"))
	fmt.Println(welcome.Run(ctx, key, "ann@example.com"))
	// Output:
	// sending mail to ann@example.com
	// mail-1 <nil>
	// mail-1 <nil>
}

// The same key with other content is a bug of the caller. What counts as content can be chosen: here the time at which a
// request was sent does not.
func ExampleDefinition_Fingerprint() {
	type request struct {
		Amount int64
		SentAt time.Time
	}
	ctx := context.Background()
	payout, err := saga.New(saga.Once("pay_out", func(_ context.Context, r *steps.Run[request]) (int64, error) {
		return r.Input.Amount, nil
	}).Fingerprint(func(in request) any { return in.Amount }), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "payout-1"}
	fmt.Println(payout.Run(ctx, key, request{100, time.Now()}))
	fmt.Println(payout.Run(ctx, key, request{100, time.Now().Add(time.Second)}))
	_, err = payout.Run(ctx, key, request{200, time.Now()})
	fmt.Println(errors.Is(err, saga.ErrPayloadMismatch))
	// Output:
	// 100 <nil>
	// 100 <nil>
	// true
}

// Steps may be appended to a definition at any time. When they change in another way, the new declaration gets a version,
// and is told how the runs of the old one are finished.
func ExampleDefinition_Previous() {
	ctx, store := context.Background(), memory.New()
	down := true
	step := func(name string) *steps.Step[string, steps.None] {
		return steps.Do(name, func(context.Context, *steps.Run[string]) error {
			if down {
				return errors.New("not reachable")
			}
			fmt.Println(name)
			return nil
		}).Retry(steps.RetryPolicy{PerRun: 1})
	}
	v1 := saga.Define("ship", saga.NoResult, step("print_label"), step("call_carrier"))
	v2 := saga.Define("ship", saga.NoResult, step("book_pickup"), step("print_label")).Version(2).Previous(v1)

	old, err := saga.New(v1, store)
	if err != nil {
		panic(err)
	}
	_, err = old.Run(ctx, saga.Key{ID: "parcel-1"}, "to Osaka")
	fmt.Println(errors.Is(err, saga.ErrInterrupted))

	down = false
	deployed, err := saga.New(v2, store)
	if err != nil {
		panic(err)
	}
	fmt.Println("parcel 1, started by the old version:")
	_, err = deployed.Run(ctx, saga.Key{ID: "parcel-1"}, "to Osaka")
	fmt.Println(err)
	fmt.Println("parcel 2:")
	_, err = deployed.Run(ctx, saga.Key{ID: "parcel-2"}, "to Nara")
	fmt.Println(err)
	// Output:
	// true
	// parcel 1, started by the old version:
	// print_label
	// call_carrier
	// <nil>
	// parcel 2:
	// book_pickup
	// print_label
	// <nil>
}

// Report tells whether a call did the work or got the stored result.
func ExampleReport() {
	ctx := context.Background()
	greet, err := saga.New(saga.Once("greet", func(_ context.Context, r *steps.Run[string]) (string, error) {
		return "hello " + r.Input, nil
	}), memory.New())
	if err != nil {
		panic(err)
	}
	for range 2 {
		var info saga.RunInfo
		out, err := greet.Run(ctx, saga.Key{ID: "1"}, "ann", saga.Report(&info))
		fmt.Println(out, err, info.Status, "replayed:", info.Replayed)
	}
	// Output:
	// hello ann <nil> COMPLETED replayed: false
	// hello ann <nil> COMPLETED replayed: true
}

// While one call is at work on a key, every other one is told so, or waits for its end.
func ExampleWait() {
	ctx := context.Background()
	started, finish := make(chan struct{}), make(chan struct{})
	slow, err := saga.New(saga.Once("slow", func(context.Context, *steps.Run[int]) (string, error) {
		close(started)
		<-finish
		return "done once", nil
	}), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "1"}
	first := make(chan error)
	go func() {
		_, err := slow.Run(ctx, key, 1)
		first <- err
	}()
	<-started

	_, err = slow.Run(ctx, key, 1)
	fmt.Println(errors.Is(err, saga.ErrInProgress))
	close(finish)
	fmt.Println(slow.Run(ctx, key, 1, saga.Wait(time.Minute)))
	fmt.Println(<-first)
	// Output:
	// true
	// done once <nil>
	// <nil>
}

// booking is a saga of two steps, the second of which may be unreachable.
func booking(reachable *bool) *saga.Definition[string, steps.None] {
	hotel := steps.Do("book_hotel", func(context.Context, *steps.Run[string]) error {
		fmt.Println("hotel booked")
		return nil
	}).
		Compensate(func(_ context.Context, r *steps.Run[string], _ steps.Outcome[steps.None]) error {
			fmt.Println("hotel cancelled:", r.Cause())
			return nil
		})
	train := steps.Do("book_train", func(context.Context, *steps.Run[string]) error {
		if !*reachable {
			return errors.New("the railway does not answer")
		}
		fmt.Println("train booked")
		return nil
	}).
		Compensate(func(_ context.Context, _ *steps.Run[string], did steps.Outcome[steps.None]) error {
			fmt.Println("train cancelled; it is known to have been booked:", did.Known)
			return nil
		}).
		Retry(steps.RetryPolicy{PerRun: 1})
	return saga.Define("book_trip", saga.NoResult, hotel, train)
}

// A run that has not ended is undone on request. The train may have been booked, since nobody has seen an answer, so it
// is cancelled too.
func ExampleOrchestrator_Cancel() {
	ctx := context.Background()
	trips, err := saga.New(booking(new(bool)), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "trip-1"}
	_, err = trips.Run(ctx, key, "Kyoto")
	fmt.Println(errors.Is(err, saga.ErrInterrupted))

	fmt.Println(trips.Cancel(ctx, key, "changed my mind"))

	_, err = trips.Run(ctx, key, "Kyoto")
	var failed *saga.Error
	fmt.Println(errors.As(err, &failed), errors.Is(err, saga.ErrFailed), failed.Code)
	// Output:
	// hotel booked
	// true
	// train cancelled; it is known to have been booked: false
	// hotel cancelled: cancelled: changed my mind
	// <nil>
	// true true cancelled
}

// A run that is completed can be undone on purpose.
func ExampleOrchestrator_Reverse() {
	ctx, reachable := context.Background(), true
	trips, err := saga.New(booking(&reachable), memory.New())
	if err != nil {
		panic(err)
	}
	key := saga.Key{ID: "trip-1"}
	_, err = trips.Run(ctx, key, "Kyoto")
	fmt.Println(err)

	fmt.Println(trips.Reverse(saga.ActorContext(ctx, "ann"), key, "the traveller is ill"))

	_, err = trips.Run(ctx, key, "Kyoto")
	fmt.Println(errors.Is(err, saga.ErrReversed))
	// Output:
	// hotel booked
	// train booked
	// <nil>
	// train cancelled; it is known to have been booked: true
	// hotel cancelled: reversed: the traveller is ill
	// <nil>
	// true
}

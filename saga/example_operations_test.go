package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// docs/operations.md shows the bodies of the functions in this file; a test compares them.

func recoverAlways(ctx context.Context, logger *zap.Logger, checkout, refunds saga.Recoverable) {
	go func() {
		err := saga.RecoverLoop(ctx, 10*time.Second, checkout, refunds) // all orchestrators of this program; until ctx ends
		logger.Info("recovery has ended", zap.Error(err))
	}()
}

func retryBlocked(ctx context.Context, store state.Store) error {
	desk := saga.NewOperator(store)
	blocked := state.Query{Statuses: []state.Status{state.StatusBlocked}}
	for rec, err := range desk.Runs(ctx, blocked) {
		if err != nil {
			return err
		}
		fmt.Println(rec.Key, "is blocked at", rec.CurrentStep)
		key, err := state.ParseKey(rec.Key)
		if err != nil {
			return err
		}
		if err := desk.Retry(saga.ActorContext(ctx, "ann"), key, "the tax office is back"); err != nil {
			return err
		}
	}
	return nil
}

func shipping(bookPickup, printLabel, callCarrier steps.Declared[string]) *saga.Definition[string, steps.None] {
	v1 := saga.Define("ship", saga.NoResult, printLabel, callCarrier)
	v2 := saga.Define("ship", saga.NoResult, bookPickup, printLabel).Version(2).Previous(v1)
	return v2
}

// One program leads blocked runs out, and another one's recovery goes on with them.
func Example_operations() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, refuses := memory.New(), true
	reported := make(chan string, 1)
	step := func(name string) *steps.Step[string, steps.None] {
		return steps.Do(name, func(context.Context, *steps.Run[string]) error { return nil })
	}
	report := steps.Do("report", func(_ context.Context, r *steps.Run[string]) error {
		if refuses {
			return steps.Permanent(errors.New("the tax office is closed"))
		}
		reported <- r.Input
		return nil
	})
	sales, err := saga.New(saga.Define("sale", saga.NoResult, step("deliver").Pivot(), report), store)
	if err != nil {
		panic(err)
	}
	ships, err := saga.New(shipping(step("book_pickup"), step("print_label"), step("call_carrier")), store)
	if err != nil {
		panic(err)
	}
	_, err = sales.Run(ctx, saga.Key{ID: "1"}, "tea")
	fmt.Println(errors.Is(err, saga.ErrBlocked))

	refuses = false
	fmt.Println(retryBlocked(ctx, store))
	recoverAlways(ctx, zap.NewNop(), sales, ships)
	fmt.Println("reported:", <-reported)
	// Output:
	// true
	// #sale#1 is blocked at report
	// <nil>
	// reported: tea
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// lease is how long a dead process's run is left alone, in case that the process isn't dead but slow. The default of 30
// seconds is better for a service, and longer than anyone wants to watch.
const lease = 3 * time.Second

// one is one process: it makes the order, or serves orders, and shows the books afterwards if it has started the provider.
func one(ctx context.Context, o options) (err error) {
	finished := true
	if o.db == "" {
		dir, err := os.MkdirTemp("", "tsuzuki-payment-")
		if err != nil {
			return err
		}
		o.db = filepath.Join(dir, "runs.db")
		defer func() {
			if finished {
				err = errors.Join(err, os.RemoveAll(dir))
			}
		}()
	}
	w, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	if o.http != "" {
		err = o.serve(ctx, w)
	} else if finished, err = o.order(ctx, w); !finished {
		o.sayHowToGoOn()
	}
	if err != nil || o.provider != "" {
		return err
	}
	fmt.Println()
	return o.showBooks()
}

// order makes the order, or goes on with it, or returns what came of it. This is what a handler does.
func (o options) order(ctx context.Context, w *world) (finished bool, err error) {
	orders, err := o.orders(w)
	if err != nil {
		return false, err
	}
	in := checkout.Order{OrderNo: o.key, SKU: "tea-100", Quantity: 2, Amount: 1200}
	var info saga.RunInfo
	receipt, err := orders.Run(ctx, runKey(o.key), in, saga.Report(&info))
	if errors.Is(err, saga.ErrInProgress) {
		// A handler would answer 409 with Retry-After. Here there is time to wait until the holder ends, or its lease does.
		sayf("run", "held by another process, perhaps a dead one; waiting for its lease of %v to end", lease)
		receipt, err = orders.Run(ctx, runKey(o.key), in, saga.Wait(5*lease), saga.Report(&info))
	}
	finished, err = verdict(receipt, info, err)
	if err != nil {
		return finished, err
	}
	return finished, w.sendTheRest(ctx)
}

// orders is the orchestrator: the saga on the store.
func (o options) orders(w *world) (*saga.Orchestrator[checkout.Order, checkout.Receipt], error) {
	return saga.New(checkout.New(w.services), w.store,
		saga.WithLease(lease),
		saga.WithErrors(checkout.Errors()),
		saga.WithListener(narrator()),
		saga.WithInterceptor(o.around),
		saga.WithRelay(w.relay),
	)
}

func (o options) sayHowToGoOn() {
	if o.http != "" {
		sayf("later", "go run ./examples/payment --http %s --db %s%s, and the same request again", o.http, o.db, o.otherFlags())
		return
	}
	sayf("later", "go run ./examples/payment --key %s --db %s%s", o.key, o.db, o.otherFlags())
}

// otherFlags are the flags that say where things are kept, with a space before each.
func (o options) otherFlags() (said string) {
	for _, word := range o.placeFlags() {
		said += " " + word
	}
	return said
}

func runKey(orderNo string) saga.Key { return saga.Key{Tenant: "demo", ID: orderNo} }

// verdict says what came of the order. A declined card is an answer, not an error of the program.
func verdict(receipt checkout.Receipt, info saga.RunInfo, err error) (finished bool, _ error) {
	again := ""
	if info.Replayed {
		again = "; stored, nothing ran"
	}
	switch {
	case err == nil:
		sayf("answer", "%s: charge %s, %d points%s", good("paid"), receipt.ChargeID, receipt.Points, again)
		return true, nil
	case errors.Is(err, checkout.ErrDeclined):
		sayf("answer", "%s: %v%s", bad("failed"), checkout.ErrDeclined, again)
		return true, nil
	}
	goesOn := errors.Is(err, saga.ErrInterrupted) || errors.Is(err, saga.ErrInProgress) || errors.Is(err, saga.ErrLeaseLost)
	return !goesOn, err
}

// around stands around every call of a step. What it has seen is recorded only after it has returned, so this is the place
// for --crash-after.
func (o options) around(ctx context.Context, call saga.Call, next func(context.Context) error) error {
	err := next(ctx)
	switch {
	case steps.IsPermanent(err):
		sayf(call.Step, "%s for good", bad("refused"))
	case err == nil && call.Phase == "do" && call.Step == o.crashAfter:
		sayf(call.Step, "%s, and the process dies before that is recorded", bad("has run"))
		if o.provider == "" {
			o.sayHowToGoOn()
		}
		os.Exit(exitCrashed)
	}
	return err
}

// narrator says what happens.
func narrator() saga.Listener {
	return saga.Listener{
		RunStarted: func(context.Context, saga.RunEvent) { sayf("run", "started") },
		RunResumed: func(_ context.Context, e saga.RunEvent) { sayf("run", "taken up again, %s", e.Status) },
		StepDone: func(_ context.Context, e saga.StepEvent) {
			if e.Attempt > 1 {
				sayf(e.Step, "%s, attempt %d with the same key", good("done"), e.Attempt)
				return
			}
			sayf(e.Step, "%s", good("done"))
		},
		StepRetried: func(_ context.Context, e saga.StepEvent) {
			why := "a transient error"
			if errors.Is(e.Err, context.DeadlineExceeded) {
				why = "no answer in time"
			}
			sayf(e.Step, "%s: %s; trying again with the same key", bad("unknown"), why)
		},
		StepUndone: func(_ context.Context, e saga.StepEvent) { sayf(e.Step, "undone") },
	}
}

// showRecord prints what is recorded of a run.
func showRecord(ctx context.Context, store state.Store, orderNo string) error {
	key := runKey(orderNo)
	key.Operation = checkout.Operation
	rec, err := saga.NewOperator(store).Get(ctx, key)
	if err != nil {
		return err
	}
	fmt.Printf("recorded of %s: %s\n", rec.Key, rec.Status)
	for _, s := range rec.Steps {
		sayf(s.Name, "%s", s.Status)
	}
	return nil
}

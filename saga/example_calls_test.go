package saga_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A client with KeyTransport sends the step's key by itself, and CheckResponse says what an answer means for the step.
func Example_http() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charge under", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusUnprocessableEntity)
	}))
	defer provider.Close()
	client := &http.Client{Transport: &steps.KeyTransport{Base: provider.Client().Transport}}

	charge := steps.Do("charge", func(ctx context.Context, _ *steps.Run[int64]) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err // transient: nobody knows whether it arrived
		}
		defer resp.Body.Close()
		return steps.CheckResponse(resp)
	})
	payments, err := saga.New(saga.Define("pay", saga.NoResult, charge), memory.New())
	if err != nil {
		panic(err)
	}
	_, err = payments.Run(context.Background(), saga.Key{Tenant: "tenant-a", ID: "1"}, 1200)
	var failed *saga.Error
	fmt.Println(errors.As(err, &failed), errors.Is(err, saga.ErrFailed), failed.Code)
	// Output:
	// charge under tenant-a#pay#1/charge
	// true true http_422
}

// A step that makes several calls gives each a key of its own. Short forms are for participants with strict keys.
func Example_derivedKeys() {
	step := steps.Do("settle", func(_ context.Context, r *steps.Run[int64]) error {
		fmt.Println(r.IdempotencyKey())
		fmt.Println(r.Sub("fee"))
		fmt.Println(r.Sub("fee").Hashed(20))
		fmt.Println(r.DerivedKey().UUID())
		return nil
	})
	o, err := saga.New(saga.Define("payout", saga.NoResult, step), memory.New())
	if err != nil {
		panic(err)
	}
	_, err = o.Run(context.Background(), saga.Key{Tenant: "tenant-a", ID: "1"}, 1200)
	fmt.Println(err)
	// Output:
	// tenant-a#payout#1/settle
	// tenant-a#payout#1/settle/fee
	// ssfcjj65e3uq3usdmvo5
	// caaa75d8-8e09-832c-b15a-e56149117c15
	// <nil>
}

// Retries may end: after MaxAttempts calls over all runs a transient error is permanent. Its last call may have taken
// effect, so the step is undone too.
func Example_maxAttempts() {
	ctx := context.Background()
	ask := steps.Do("ask", func(_ context.Context, r *steps.Run[int]) error {
		return fmt.Errorf("no answer to call %d", r.Attempt())
	}).
		MaxAttempts(3).
		Retry(steps.RetryPolicy{Initial: time.Millisecond, PerRun: 2}).
		Compensate(func(_ context.Context, _ *steps.Run[int], did steps.Outcome[steps.None]) error {
			fmt.Println("close", did.Key)
			return nil
		})
	o, err := saga.New(saga.Define("survey", saga.NoResult, ask), memory.New())
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, err := o.Run(ctx, saga.Key{ID: "1"}, 1)
		var stopped *saga.Error
		if errors.As(err, &stopped) {
			fmt.Println(stopped.Kind, stopped.Code, stopped.Err)
		}
	}
	// Output:
	// interrupted  no answer to call 2
	// close #survey#1/ask
	// failed max_attempts no answer to call 3
}

// A deadline bounds the whole of a run, over all its calls: before the pivot it is undone then.
func ExampleDefinition_Deadline() {
	ctx := context.Background()
	hold := steps.Do("hold", func(context.Context, *steps.Run[int]) error { return nil }).
		Compensate(func(context.Context, *steps.Run[int], steps.Outcome[steps.None]) error {
			fmt.Println("released")
			return nil
		})
	confirm := steps.Do("confirm", func(context.Context, *steps.Run[int]) error {
		return errors.New("no answer")
	}).
		NoCompensation().
		Retry(steps.RetryPolicy{Initial: time.Millisecond, PerRun: 1000})
	o, err := saga.New(saga.Define("booking", saga.NoResult, hold, confirm).Deadline(20*time.Millisecond), memory.New())
	if err != nil {
		panic(err)
	}
	_, err = o.Run(ctx, saga.Key{ID: "1"}, 1)
	var failed *saga.Error
	fmt.Println(errors.As(err, &failed), errors.Is(err, saga.ErrFailed), failed.Code)
	// Output:
	// released
	// true true deadline_exceeded
}

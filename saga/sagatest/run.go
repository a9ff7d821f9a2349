package sagatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Operation is the operation of a run's key when a test gives none. In a real run it is the saga's name.
const Operation = "operation"

// Run is a run in which one step is tested by itself, with neither a store nor the other steps. Make one with [NewRun]
// for each test; a Run is for one goroutine.
type Run[In, Out any] struct {
	tb      testing.TB
	key     saga.Key
	runKey  string
	step    drive.Step
	input   json.RawMessage
	outputs []json.RawMessage // of the steps before
	index   map[any]int
	cause   error
	resumed bool

	attempts int
	undos    int
	emitted  []outbox.Message
}

// NewRun makes a run in which step is the step at hand, with this key and this input. The step sees the input as it
// would in a real run: encoded and decoded again, afresh for every call. The test fails at once when the key, the
// declaration of the step or a value is one that a real run would refuse.
//
//	r := sagatest.NewRun(t, saga.Key{Tenant: "tenant-a", ID: "order-001"}, charge, Order{Amount: 1200},
//		sagatest.Given(reserve, Reservation{ID: "r-1"}))
func NewRun[In, Out any](tb testing.TB, key saga.Key, step *steps.Step[In, Out], input In, opts ...RunOption) *Run[In, Out] {
	tb.Helper()
	r := &Run[In, Out]{tb: tb, key: key, index: map[any]int{}, cause: errBackwards}
	if err := r.set(step, input, opts); err != nil {
		tb.Fatalf("sagatest: NewRun: %v", err)
	}
	return r
}

// errBackwards is what a compensation sees as the cause when the test gives none.
var errBackwards = errors.New("sagatest: the run goes backwards")

func (r *Run[In, Out]) set(step *steps.Step[In, Out], input In, opts []RunOption) (err error) {
	if step == nil {
		return errors.New("the step is nil")
	}
	r.step = step.Snapshot()
	if len(r.step.Problems) > 0 {
		return fmt.Errorf("step %s: %s", r.step.Name, r.step.Problems[0])
	}
	if r.key.Operation == "" {
		r.key.Operation = Operation
	}
	if r.runKey, err = r.key.Encode(); err != nil {
		return err
	}
	if r.input, err = state.Encode(input); err != nil {
		return err
	}
	if _, err := steps.NewRun[In](&drive.Call{Input: r.input}); err != nil {
		return err
	}
	c := runConfig{cause: r.cause, index: r.index}
	for _, o := range opts {
		if err := o.applyRun(&c); err != nil {
			return err
		}
	}
	if _, given := r.index[r.step.Origin]; given {
		return fmt.Errorf("step %s: it is the step at hand, so it can't be given; Undo is told its output", r.step.Name)
	}
	r.outputs, r.resumed, r.cause = c.outputs, c.resumed, c.cause
	r.attempts = c.attempts
	r.index[r.step.Origin] = len(r.outputs)
	return nil
}

// Do calls the step's function once, as an attempt of a real run would, and returns what a real run would record: the
// result encoded and decoded again. An error has the class that the run would see (see [steps.IsPermanent] and
// [steps.Delay]): a panic is an error, the panic of Output a permanent one, a message that can't be emitted a permanent
// one. A result that can't be recorded is an error as well, although the step would count as done.
//
// Called again on the same run it is the next attempt, under the same key. The step's Timeout ends the context. The
// function is called in the test's own goroutine, so that it may use t, and is waited for.
func Do[In, Out any](ctx context.Context, r *Run[In, Out]) (Out, error) {
	r.tb.Helper()
	return decoded[Out](r.call(ctx, drive.Do, r.step.Do))
}

// Undo calls the step's compensation once. did is what is known of the step; its Key is filled in. Known with an output
// stands for a step that is done, the zero value for one of which nobody knows whether it happened: both are worth a
// test.
func Undo[In, Out any](ctx context.Context, r *Run[In, Out], did steps.Outcome[Out]) error {
	r.tb.Helper()
	if r.step.Undo == nil {
		r.tb.Fatalf("sagatest: Undo: step %s declares no compensation", r.step.Name)
	}
	var output json.RawMessage
	if did.Known {
		raw, err := r.step.Check(did.Output)
		if err != nil {
			r.tb.Fatalf("sagatest: Undo: step %s: its output: %v", r.step.Name, err)
		}
		output = raw
	}
	return r.call(ctx, drive.Undo, func(ctx context.Context, c *drive.Call) drive.Result {
		c.Outputs = append(c.Outputs[:len(c.Outputs):len(c.Outputs)], output)
		return r.step.Undo(ctx, c, did.Known, output)
	}).Err
}

// Probe calls the step's Probe once. The error is the participant's, or one of those that [Do] may give.
func Probe[In, Out any](ctx context.Context, r *Run[In, Out]) (out Out, found bool, err error) {
	r.tb.Helper()
	if r.step.Probe == nil {
		r.tb.Fatalf("sagatest: Probe: step %s declares none", r.step.Name)
	}
	res := r.call(ctx, drive.Probe, func(ctx context.Context, c *drive.Call) (res drive.Result) {
		res, found = r.step.Probe(ctx, c)
		return res
	})
	if res.Err != nil || !found {
		return out, false, res.Err
	}
	out, err = decoded[Out](res)
	return out, err == nil, err
}

// When asks the step's When, once.
func When[In, Out any](r *Run[In, Out]) (yes bool, err error) {
	r.tb.Helper()
	if r.step.When == nil {
		r.tb.Fatalf("sagatest: When: step %s declares none", r.step.Name)
	}
	res := r.call(context.Background(), drive.When, func(_ context.Context, c *drive.Call) drive.Result {
		yes = r.step.When(c)
		return drive.Result{}
	})
	return yes && res.Err == nil, res.Err
}

// Emitted is the messages that the last call has emitted, as a publisher would get them: with their IDs, and with bodies
// that are encoded. What an attempt has emitted that returned an error is never due, so there is none then.
func Emitted[In, Out any](r *Run[In, Out]) []outbox.Message { return r.emitted }

// call makes one call and closes it.
func (r *Run[In, Out]) call(ctx context.Context, phase drive.Phase, f func(context.Context, *drive.Call) drive.Result) drive.Result {
	c := &drive.Call{
		Key: r.key, RunKey: r.runKey, Step: r.step.Name, Phase: phase, Resumed: r.resumed,
		Input: r.input, Outputs: r.outputs, Index: r.index,
	}
	switch phase {
	case drive.Do:
		r.attempts++
		c.Attempt = r.attempts
	case drive.Undo:
		r.undos++
		c.Attempt, c.Cause = r.undos, r.cause
	case drive.Probe:
		c.Attempt = r.attempts
	}
	if r.step.Timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, r.step.Timeout)
		defer cancel()
		ctx = bounded
	}
	res := caught(func() drive.Result { return f(ctx, c) })
	messages, bad := c.Close()
	if bad != nil && res.Err == nil {
		res = drive.Result{Err: steps.Permanent(bad)}
	}
	r.emitted = nil
	if res.Err == nil {
		r.emitted = messages
	}
	return res
}

// caught turns a panic of f into the error that it counts as.
func caught(f func() drive.Result) (res drive.Result) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *drive.NoOutput:
			res = drive.Result{Err: steps.Permanent(fmt.Errorf("%w; a test of one step is told the others by Given and Skipped", p))}
		default:
			res = drive.Result{Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return f()
}

func decoded[Out any](res drive.Result) (out Out, err error) {
	switch {
	case res.Err != nil:
		return out, res.Err
	case res.Unencodable != nil:
		return out, fmt.Errorf("sagatest: the step is done, but its result can't be recorded: %w", res.Unencodable)
	}
	err = state.Decode(res.Output, &out)
	return out, err
}

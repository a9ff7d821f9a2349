package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// DefaultRetention is how long the record of an ended run is kept when the definition says nothing.
const DefaultRetention = 30 * 24 * time.Hour

// Definition is a declared saga: a name, ordered steps, and how the result is made of their outputs. Its methods change
// it and return it; they must not be called concurrently, nor have any effect on an orchestrator made before.
type Definition[In, Out any] struct {
	p        plan
	result   func(context.Context, *steps.Run[In]) (Out, error)
	previous []*Definition[In, Out]
}

// Define declares a saga. The name becomes the operation of its keys: 1 to 64 letters, digits, '_', '-' or '.'. result
// makes the run's result of the steps' outputs; it must be safe to call again, and [NoResult] stands for none. The steps
// are taken as they are declared now. Mistakes are reported by [New].
func Define[In, Out any](name string, result func(context.Context, *steps.Run[In]) (Out, error), declared ...steps.Declared[In]) *Definition[In, Out] {
	d := &Definition[In, Out]{result: result}
	d.p = plan{name: name, retention: DefaultRetention, steps: make([]drive.Step, len(declared)), index: make(map[any]int, len(declared))}
	for i, s := range declared {
		if s != nil {
			d.p.steps[i] = s.Snapshot()
		}
		if d.p.steps[i].Do == nil {
			d.p.problem("step %d is nil", i+1)
			continue
		}
		d.p.index[d.p.steps[i].Origin] = i
	}
	if result == nil {
		d.p.problem("the result function is nil; NoResult stands for a definition without one")
	} else {
		d.p.result = d.callResult
	}
	d.p.fingerprint = func(raw json.RawMessage) (json.RawMessage, error) { return raw, nil }
	return d
}

// Once declares a saga of one step that bears the saga's name: an idempotent function.
func Once[In, Out any](name string, fn func(context.Context, *steps.Run[In]) (Out, error)) *Definition[In, Out] {
	step := steps.New(name, fn)
	return Define(name, func(_ context.Context, r *steps.Run[In]) (Out, error) { return step.Output(r), nil }, step)
}

// NoResult is the result function of a definition without a result.
func NoResult[In any](context.Context, *steps.Run[In]) (steps.None, error) { return steps.None{}, nil }

// Name is the saga's name.
func (d *Definition[In, Out]) Name() string { return d.p.name }

// Fingerprint picks what of the input makes two requests the same: a second call with the same key and another
// fingerprint is [ErrPayloadMismatch]. Without it the whole input counts. The function must be pure. What it picks must be
// valid UTF-8, as the input must, or it is [ErrInvalidInput]: give a digest as []byte, not as a string.
func (d *Definition[In, Out]) Fingerprint(pick func(In) any) *Definition[In, Out] {
	if pick == nil {
		d.p.problem("Fingerprint(nil)")
		return d
	}
	d.p.fingerprint = func(raw json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := state.Decode(raw, &in); err != nil {
			return nil, err
		}
		return picked(pick, in)
	}
	return d
}

// Version tells incompatible declarations of one saga apart; 0 when not said. Runs of another version are refused with
// [ErrDefinitionChanged] unless Previous knows it.
func (d *Definition[In, Out]) Version(n int) *Definition[In, Out] {
	if n < 0 {
		d.p.problem("Version(%d): must not be negative", n)
	}
	d.p.version = n
	return d
}

// Previous gives declarations of other versions, by which runs that they have started are continued, and their payload
// hashed.
func (d *Definition[In, Out]) Previous(older ...*Definition[In, Out]) *Definition[In, Out] {
	for _, o := range older {
		if o == nil {
			d.p.problem("Previous(nil)")
			continue
		}
		d.previous = append(d.previous, o)
	}
	return d
}

// Deadline bounds the run, counted from its start: from then on no forward step starts. Before the pivot the run then
// goes backwards, after it it is blocked, and an operator's Retry starts the time anew.
func (d *Definition[In, Out]) Deadline(after time.Duration) *Definition[In, Out] {
	if after <= 0 {
		d.p.problem("Deadline(%v): must be positive", after)
	}
	d.p.deadline = after
	return d
}

// Retention is how long the record of an ended run is kept, and with it the protection against the same request again.
// It is kept to the second; 0: for ever. Default [DefaultRetention].
func (d *Definition[In, Out]) Retention(keep time.Duration) *Definition[In, Out] {
	if keep < 0 {
		d.p.problem("Retention(%v): must not be negative", keep)
	}
	longest := time.Duration(math.MaxInt64).Truncate(time.Second) - time.Second // which can still be rounded up
	d.p.retention = state.CeilSecond(time.Unix(0, 0).Add(min(keep, longest))).Sub(time.Unix(0, 0))
	return d
}

func (d *Definition[In, Out]) callResult(ctx context.Context, c *drive.Call) drive.Result {
	r, err := steps.NewRun[In](c)
	if err != nil {
		return drive.Result{Err: err}
	}
	out, err := d.result(ctx, r)
	if err != nil {
		return drive.Result{Err: err}
	}
	raw, err := encodeAgain(out)
	return drive.Result{Output: raw, Err: err}
}

// snapshot is the definition as it is now, older ones included.
func (d *Definition[In, Out]) snapshot() (*plan, error) {
	p := d.p.clone()
	p.previous = map[int]*plan{}
	for _, o := range d.previous {
		q := o.p.clone()
		if q.name != p.name {
			p.problem("Previous: operation %q, want %q", q.name, p.name)
		}
		if _, taken := p.previous[q.version]; taken || q.version == p.version {
			p.problem("Previous: version %d is given twice", q.version)
		}
		if err := q.check(); err != nil {
			return nil, err
		}
		p.previous[q.version] = q
	}
	return p, p.check()
}

// picked is what a fingerprint picks, encoded. A panic of the function becomes an error.
func picked[In any](pick func(In) any, in In) (raw json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic in the fingerprint function: %v", state.ErrInvalidInput, p)
		}
	}()
	v := pick(in)
	if raw, err = state.Encode(v); err != nil {
		return nil, err
	}
	return raw, state.CheckText(v, raw)
}

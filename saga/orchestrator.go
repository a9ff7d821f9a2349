package saga

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Orchestrator runs a saga on a store. All methods may be called concurrently, for the same key too.
type Orchestrator[In, Out any] struct {
	e *engine
}

// New checks the definition and the options, and returns an orchestrator of the definition as it is now. Errors are of
// class [ErrInvalidDefinition] and name the step.
func New[In, Out any](d *Definition[In, Out], store state.Store, opts ...Option) (*Orchestrator[In, Out], error) {
	if d == nil {
		return nil, fmt.Errorf("saga: %w: the definition is nil", ErrInvalidDefinition)
	}
	p, err := d.snapshot()
	if err != nil {
		return nil, err
	}
	e, err := newEngine(p, store, opts)
	if err != nil {
		return nil, err
	}
	return &Orchestrator[In, Out]{e}, nil
}

var _ Runner[int, int] = (*Orchestrator[int, int])(nil)

// Run runs the operation, or goes on with it, or returns what came of it before. The input is only looked at to see that
// it is the same; the run uses the stored one. err is nil when the run is completed, now or before, or an [*Error].
//
// When ctx ends, the run is interrupted: the step at hand is unknown, and the same key goes on. A store that can't be
// reached runs nothing.
func (o *Orchestrator[In, Out]) Run(ctx context.Context, key Key, in In, opts ...RunOption) (Out, error) {
	var rc runConfig
	for _, opt := range opts {
		if opt != nil {
			opt.applyRun(&rc)
		}
	}
	if rc.report != nil {
		*rc.report = RunInfo{} // of a call that is refused before it looks at the run
	}
	raw, err := encodeAgain(in)
	if err == nil {
		err = state.CheckText(in, raw)
	}
	if err != nil {
		key.Operation = o.e.plan.name
		var none Out
		return none, &Error{Kind: ErrInvalidInput, Key: key, Err: err}
	}
	return o.result(key)(o.e.run(ctx, key, &payload{raw: raw}, rc))
}

// encodeAgain encodes a value and makes sure that it can be read again.
func encodeAgain[T any](v T) (json.RawMessage, error) {
	raw, err := state.Encode(v)
	if err != nil || state.RoundTrips[T]() {
		return raw, err
	}
	var again T
	return raw, state.Decode(raw, &again)
}

// Resume goes on with the run of this key, with the stored input, or returns what came of it. [ErrNotFound] when there is
// none.
func (o *Orchestrator[In, Out]) Resume(ctx context.Context, key Key) (Out, error) {
	return o.result(key)(o.e.run(ctx, key, nil, runConfig{}))
}

func (o *Orchestrator[In, Out]) result(key Key) func(json.RawMessage, error) (Out, error) {
	return func(raw json.RawMessage, err error) (out Out, _ error) {
		if err != nil {
			return out, err
		}
		if err := state.Decode(raw, &out); err != nil {
			key.Operation = o.e.plan.name
			return out, &Error{Kind: ErrDefinitionChanged, Key: key, Err: fmt.Errorf("the run is completed, but its stored result is not a %T: %w", out, err)}
		}
		return out, nil
	}
}

// Get returns the run's record. [ErrNotFound] when there is none.
func (o *Orchestrator[In, Out]) Get(ctx context.Context, key Key) (*state.Record, error) {
	key, runKey, err := o.e.encodeKey(key)
	if err != nil {
		return nil, err
	}
	return o.e.get(ctx, key, runKey)
}

// Cancel asks for the run to be undone; nil means that the request is stored. A holder at work obeys it before its next
// write, and a function at hand is not interrupted. When nobody is at work the undo runs at once, as far as it comes.
// A pivot that may have happened is asked about first, if it has a Probe; when it did happen the request is dropped and
// the run goes on. Without a Probe the request stands until somebody takes the run up and the pivot is known.
// [ErrNotAllowed] behind a pivot that is done, on a blocked run, and after an end.
func (o *Orchestrator[In, Out]) Cancel(ctx context.Context, key Key, reason string) error {
	return o.e.cancel(ctx, key, reason)
}

// Reverse undoes a completed run on purpose, its pivot included. Nil means that it is reversed, now or before; a run that
// stopped on the way keeps its direction, and Reverse, Run or recovery goes on. [ErrNotAllowed] when the run is not
// completed.
func (o *Orchestrator[In, Out]) Reverse(ctx context.Context, key Key, reason string) error {
	return o.e.reverse(ctx, key, reason)
}

// Retry lets a blocked run try again where it is blocked; see [Operator.Retry].
func (o *Orchestrator[In, Out]) Retry(ctx context.Context, key Key, note string) error {
	return o.verb(key, func(key Key) error { return o.e.operator().Retry(ctx, key, note) })
}

// MarkDone says that the blocked step was done, with this result, whose type is checked; see [Operator.MarkDone].
func (o *Orchestrator[In, Out]) MarkDone(ctx context.Context, key Key, step string, result any, note string) error {
	return o.verb(key, func(key Key) error {
		raw, err := o.e.checkResult(ctx, key, step, result)
		if err != nil {
			return err
		}
		return o.e.operator().MarkDone(ctx, key, step, raw, note)
	})
}

// MarkCompensated says that a step was undone by hand; see [Operator.MarkCompensated].
func (o *Orchestrator[In, Out]) MarkCompensated(ctx context.Context, key Key, step, note string) error {
	return o.verb(key, func(key Key) error { return o.e.operator().MarkCompensated(ctx, key, step, note) })
}

// ForceCompensate sends a blocked run backwards, over its pivot if need be; see [Operator.ForceCompensate].
func (o *Orchestrator[In, Out]) ForceCompensate(ctx context.Context, key Key, note string) error {
	return o.verb(key, func(key Key) error { return o.e.operator().ForceCompensate(ctx, key, note) })
}

func (o *Orchestrator[In, Out]) verb(key Key, do func(Key) error) error {
	key, _, err := o.e.encodeKey(key)
	if err != nil {
		return err
	}
	return do(key)
}

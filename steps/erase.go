package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Declared is any step over the input In, whatever its result. Only *Step is one.
type Declared[In any] interface {
	// Name is the step's name.
	Name() string
	// Snapshot is for package saga.
	Snapshot() drive.Step
	over(In)
}

func (s *Step[In, Out]) over(In) {}

// Snapshot is for package saga: the step as it is declared now, with its types erased. That of a nil step is empty.
func (s *Step[In, Out]) Snapshot() drive.Step {
	if s == nil {
		return drive.Step{}
	}
	c := *s // later declarations don't reach what the closures below see
	d := drive.Step{
		Name: c.name, Origin: s,
		NothingToUndo: c.noCompensation, Pivot: c.pivot, AtMostOnce: c.atMostOnce,
		Retry: c.retry.policy(), UndoRetry: c.undoRetry.policy(),
		Problems: append(slices.Clone(c.problems), c.conflicts()...),
		Check:    c.check,
	}
	if c.timeout != nil {
		d.Timeout = *c.timeout
	}
	if c.keyValid != nil {
		d.KeyValid = *c.keyValid
	}
	if c.maxAttempts != nil {
		d.MaxAttempts = *c.maxAttempts
	}
	d.Do = c.callDo
	if c.undo != nil {
		d.Undo = c.callUndo
	}
	if c.probe != nil {
		d.Probe = c.callProbe
	}
	if c.when != nil {
		d.When = c.callWhen
	}
	return d
}

func (s *Step[In, Out]) conflicts() (out []string) {
	add := func(bad bool, what string) {
		if bad {
			out = append(out, what)
		}
	}
	add(s.do == nil, "its function is nil")
	add(s.undo != nil && s.noCompensation, "Compensate and NoCompensation contradict each other")
	add(s.atMostOnce && s.retry != nil, "AtMostOnce and Retry contradict each other")
	add(s.atMostOnce && s.maxAttempts != nil, "AtMostOnce and MaxAttempts contradict each other")
	add(s.pivot && s.when != nil, "a pivot can't have a When")
	add(s.timeout != nil && *s.timeout <= 0, "Timeout must be positive")
	add(s.keyValid != nil && *s.keyValid <= 0, "KeyValid must be positive")
	add(s.maxAttempts != nil && *s.maxAttempts <= 0, "MaxAttempts must be positive")
	for _, p := range []*RetryPolicy{s.retry, s.undoRetry} {
		if p != nil {
			if err := p.Check(); err != nil {
				out = append(out, err.Error())
			}
		}
	}
	return out
}

func (s *Step[In, Out]) callDo(ctx context.Context, c *drive.Call) drive.Result {
	r, err := NewRun[In](c)
	if err != nil {
		return drive.Result{Err: err, NotCalled: true}
	}
	out, err := s.do(withKey(ctx, c), r)
	if err != nil {
		return drive.Result{Err: err}
	}
	return encode(out)
}

func (s *Step[In, Out]) callUndo(ctx context.Context, c *drive.Call, known bool, output json.RawMessage) drive.Result {
	r, err := NewRun[In](c)
	if err != nil {
		return drive.Result{Err: err, NotCalled: true}
	}
	did := Outcome[Out]{Known: known, Key: DerivedKey(c.ForwardKey())}
	if known {
		if err := state.Decode(output, &did.Output); err != nil {
			return drive.Result{Err: err, NotCalled: true}
		}
	}
	return drive.Result{Err: s.undo(withKey(ctx, c), r, did)}
}

func (s *Step[In, Out]) callProbe(ctx context.Context, c *drive.Call) (drive.Result, bool) {
	r, err := NewRun[In](c)
	if err != nil {
		return drive.Result{Err: err, NotCalled: true}, false
	}
	out, found, err := s.probe(withKey(ctx, c), r)
	if err != nil || !found {
		return drive.Result{Err: err}, false
	}
	return encode(out), true
}

func (s *Step[In, Out]) callWhen(c *drive.Call) bool {
	r, err := NewRun[In](c)
	if err != nil {
		panic(err)
	}
	return s.when(r)
}

func (s *Step[In, Out]) check(result any) (json.RawMessage, error) {
	out, ok := result.(Out)
	if result == nil {
		switch reflect.TypeFor[Out]().Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			ok = true
		default:
			_, ok = any(out).(None)
		}
	}
	if _, none := any(out).(None); !ok && none {
		return nil, fmt.Errorf("%w: step %s: the result is of type %T, and the step has none: say nil", state.ErrInvalidInput, s.name, result)
	}
	if !ok {
		return nil, fmt.Errorf("%w: step %s: the result is of type %T, want %v", state.ErrInvalidInput, s.name, result, reflect.TypeFor[Out]())
	}
	r := encode(out)
	return r.Output, r.Unencodable
}

var null = json.RawMessage("null")

// encode turns a result into its stored form, and makes sure that it can be read again: what can't be decoded is as lost
// as what can't be encoded.
func encode[Out any](out Out) drive.Result {
	if _, none := any(out).(None); none {
		return drive.Result{Output: null}
	}
	raw, err := state.Encode(out)
	if err != nil {
		return drive.Result{Unencodable: err}
	}
	if !state.RoundTrips[Out]() {
		var again Out
		if err := state.Decode(raw, &again); err != nil {
			return drive.Result{Unencodable: err}
		}
	}
	return drive.Result{Output: raw}
}

func (s *Step[In, Out]) lookup(r *Run[In]) (out Out, ok bool, why string) {
	i, declared := r.call.Index[any(s)]
	switch {
	case !declared && s.twin(r):
		return out, false, "another step of this name is declared, and this very one is not declared in this definition; ask the one that was given to Define"
	case !declared:
		return out, false, "it is not declared in this definition; add it to Define"
	case i >= len(r.call.Outputs):
		return out, false, "it stands later in the definition, or is the step at hand itself"
	case r.call.Outputs[i] == nil:
		return out, false, "it was skipped, or was done without a recorded result; use Lookup where that can be"
	}
	if err := state.Decode(r.call.Outputs[i], &out); err != nil {
		return out, false, err.Error()
	}
	return out, true, ""
}

// twin tells whether another step of this name is declared: a constructor that was called twice makes one.
func (s *Step[In, Out]) twin(r *Run[In]) bool {
	for other := range r.call.Index {
		if named, ok := other.(interface{ Name() string }); ok && named.Name() == s.name {
			return true
		}
	}
	return false
}

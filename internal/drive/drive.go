// Package drive is how package saga drives typed steps: a step with its types erased, and what one call of one of its
// functions is given. It is internal so that the way may change.
package drive

import (
	"context"
	"encoding/json"
	"time"
)

// Step is a snapshot of a declared step.
type Step struct {
	Name string
	// Origin is the *steps.Step that it was taken from: the identity by which Output finds it.
	Origin any

	// Do calls the step's function. It runs user code: it may panic, block, or end its goroutine.
	Do func(ctx context.Context, c *Call) Result
	// Undo calls the compensation; nil when none is declared. known tells whether output is the recorded one.
	Undo func(ctx context.Context, c *Call, known bool, output json.RawMessage) Result
	// Probe asks whether an unknown step happened; nil when none is declared. Found is only valid without an error.
	Probe func(ctx context.Context, c *Call) (r Result, found bool)
	// When decides whether the step is run; nil: it is. User code that may panic.
	When func(c *Call) bool
	// Check encodes a result that a person gives, if it is of the step's type.
	Check func(result any) (json.RawMessage, error)

	NothingToUndo bool
	Pivot         bool
	AtMostOnce    bool
	Retry         Policy
	UndoRetry     Policy
	Timeout       time.Duration
	KeyValid      time.Duration
	MaxAttempts   int

	// Problems are mistakes in the declaration, for New to report.
	Problems []string
}

// Compensable tells whether the step can be undone, or has nothing to undo.
func (s *Step) Compensable() bool { return s.Undo != nil || s.NothingToUndo }

// Policy is a retry policy; zero fields are the defaults.
type Policy struct {
	Initial, Max       time.Duration
	Multiplier, Jitter float64
	PerRun             int
}

// Or fills zero fields from d.
func (p Policy) Or(d Policy) Policy {
	if p.Initial == 0 {
		p.Initial = d.Initial
		if p.Max > 0 {
			p.Initial = min(p.Initial, p.Max)
		}
	}
	if p.Max == 0 {
		p.Max = max(d.Max, p.Initial)
	}
	if p.Multiplier == 0 {
		p.Multiplier = d.Multiplier
	}
	if p.Jitter == 0 {
		p.Jitter = d.Jitter
	}
	if p.PerRun == 0 {
		p.PerRun = d.PerRun
	}
	return p
}

// Result is what became of one call.
type Result struct {
	// Output is the encoded result, when Err and Unencodable are nil.
	Output json.RawMessage
	// Err is the function's own error.
	Err error
	// Unencodable: the function returned nil, but its result can't be recorded.
	Unencodable error
	// NotCalled: the function was never reached (its input can't be decoded any more); Err says why.
	NotCalled bool
}

// NoOutput is what Output panics with.
type NoOutput struct{ Step, Why string }

func (e *NoOutput) Error() string { return "no output of step " + e.Step + ": " + e.Why }

// None is the result of a step without one.
type None struct{}

// MarshalJSON gives null.
func (None) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// UnmarshalJSON accepts anything.
func (*None) UnmarshalJSON([]byte) error { return nil }

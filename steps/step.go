package steps

import (
	"context"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// None is the result of a step or a definition without one. It is recorded as null.
type None = drive.None

// Step is a declared step over the input In with the result Out. The declaring methods change the step and return it;
// they must not be called concurrently. A definition takes a snapshot, so what is declared later changes nothing there,
// and a step may stand in several definitions.
type Step[In, Out any] struct {
	name  string
	do    func(context.Context, *Run[In]) (Out, error)
	undo  func(context.Context, *Run[In], Outcome[Out]) error
	probe func(context.Context, *Run[In]) (Out, bool, error)
	when  func(*Run[In]) bool

	noCompensation, pivot, atMostOnce bool
	retry, undoRetry                  *RetryPolicy
	timeout, keyValid                 *time.Duration
	maxAttempts                       *int
	problems                          []string
}

// Outcome is what is known of a step that is to be undone.
type Outcome[Out any] struct {
	// Known: Output is the recorded result. Otherwise it is unknown whether the step happened, or it was done without a
	// recorded result; the compensation must then make Key unusable at the participant, or accept that nothing happened.
	Known bool
	// Output is the recorded result; the zero value when Known is false.
	Output Out
	// Key is the derived key that the step's own call carried.
	Key DerivedKey
}

// New declares a step. The name is 1 to 64 letters, digits, '_', '-' or '.', and unique in its definition; do must be
// safe to call again with the same derived key. Mistakes are reported by saga.New.
func New[In, Out any](name string, do func(context.Context, *Run[In]) (Out, error)) *Step[In, Out] {
	return &Step[In, Out]{name: name, do: do}
}

// Do declares a step without a result.
func Do[In any](name string, do func(context.Context, *Run[In]) error) *Step[In, None] {
	s := &Step[In, None]{name: name}
	if do != nil {
		s.do = func(ctx context.Context, r *Run[In]) (None, error) { return None{}, do(ctx, r) }
	}
	return s
}

// Name is the step's name.
func (s *Step[In, Out]) Name() string { return s.name }

// Compensate declares how the step is undone. The function is called for a step that is done or unknown, carries the key
// "<derived key>/compensate", and must be safe to call again.
func (s *Step[In, Out]) Compensate(undo func(ctx context.Context, r *Run[In], did Outcome[Out]) error) *Step[In, Out] {
	if undo == nil {
		s.problem("Compensate(nil): say NoCompensation() when there is nothing to undo")
	}
	s.undo = undo
	return s
}

// NoCompensation says on purpose that the step has nothing to undo. It is then not listed in Failure.NotUndone, and may
// stand before a pivot.
func (s *Step[In, Out]) NoCompensation() *Step[In, Out] {
	s.noCompensation = true
	return s
}

// Retry sets how the step is tried again on transient errors.
func (s *Step[In, Out]) Retry(p RetryPolicy) *Step[In, Out] {
	s.retry = &p
	return s
}

// CompensateRetry sets how the compensation is tried again on transient errors.
func (s *Step[In, Out]) CompensateRetry(p RetryPolicy) *Step[In, Out] {
	s.undoRetry = &p
	return s
}

// Timeout bounds one attempt at the step, at its compensation and at its probe. An attempt that meets it is unknown.
func (s *Step[In, Out]) Timeout(d time.Duration) *Step[In, Out] {
	s.timeout = &d
	return s
}

// MaxAttempts bounds the calls of the step's function over all runs; after the last one a transient error is permanent.
func (s *Step[In, Out]) MaxAttempts(n int) *Step[In, Out] {
	s.maxAttempts = &n
	return s
}

// Pivot makes this the step after which there is no way back: before it everything must be undoable, from it on the run
// only goes forward. (Richardson, Microservices Patterns, chapter 4: compensatable, pivot and retriable transactions.)
func (s *Step[In, Out]) Pivot() *Step[In, Out] {
	s.pivot = true
	return s
}

// AtMostOnce is for an effect that must not be repeated and has no key: a mark is committed before the one call, which is
// never made again. Without a definite answer the step is done if Probe says so, and otherwise the run is blocked.
// It can't be combined with Retry or MaxAttempts.
func (s *Step[In, Out]) AtMostOnce() *Step[In, Out] {
	s.atMostOnce = true
	return s
}

// KeyValid says how long the participant remembers an idempotency key (Stripe: 24 hours). An unknown step whose first
// attempt is older is not called again unless Probe says that it did not happen; without a Probe the run is blocked.
func (s *Step[In, Out]) KeyValid(d time.Duration) *Step[In, Out] {
	s.keyValid = &d
	return s
}

// When makes the step conditional. The function must be pure: it is evaluated once, before the write that records the
// preceding step, and its answer is stored in that write. One that panics, or emits a message, fails its step for good. It
// can't be declared on a pivot.
func (s *Step[In, Out]) When(when func(*Run[In]) bool) *Step[In, Out] {
	if when == nil {
		s.problem("When(nil)")
	}
	s.when = when
	return s
}

// Probe asks the participant whether an unknown step happened, before it is run again or undone. true: it is recorded as
// done with that result. false: it did not happen. An error: the run is interrupted. It sees the forward key.
//
// A "no" must hold: a call under the same key that is still on its way, from a process that was taken for dead, must not
// take effect after it. A participant that can't promise that is asked in a way that closes the key, or Probe returns an
// error until such a call can't come any more. Messages of the step are emitted by Probe as well when it found it done:
// those of the attempt that died are gone.
func (s *Step[In, Out]) Probe(probe func(context.Context, *Run[In]) (Out, bool, error)) *Step[In, Out] {
	if probe == nil {
		s.problem("Probe(nil)")
	}
	s.probe = probe
	return s
}

// Output is the recorded result of this step, as decoded from its stored form, afresh at every call. It panics with a
// clear message when the step has none: when it was skipped, stands later, or is not declared in the run's definition.
// That panic is a permanent failure of the step that asked, never a crash. See Lookup for a step that may be skipped.
func (s *Step[In, Out]) Output(r *Run[In]) Out {
	out, ok, why := s.lookup(r)
	if !ok {
		panic(&drive.NoOutput{Step: s.name, Why: why})
	}
	return out
}

// Lookup is the recorded result of this step, if there is one. It says no, as Output panics: for a step that was skipped,
// stands later, or is not declared in the run's definition.
func (s *Step[In, Out]) Lookup(r *Run[In]) (Out, bool) {
	out, ok, _ := s.lookup(r)
	return out, ok
}

func (s *Step[In, Out]) problem(p string) { s.problems = append(s.problems, p) }

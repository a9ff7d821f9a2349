package saga

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// The kinds of an [*Error], for errors.Is.
var (
	// ErrInProgress: another holder has a live lease. Come back after RetryAfter.
	ErrInProgress = errors.New("in progress elsewhere")
	// ErrInterrupted: a step stopped on a transient error, or time ran out; progress is kept. Call again with the same key.
	ErrInterrupted = errors.New("interrupted")
	// ErrFailed: failed for good. What had taken effect is undone, and what could not be is in NotUndone. The same key
	// returns the same failure.
	ErrFailed = errors.New("failed")
	// ErrReversed: it was completed and later undone on purpose.
	ErrReversed = errors.New("reversed")
	// ErrBlocked: an operator is needed; see Operator.
	ErrBlocked = errors.New("blocked")
	// ErrPayloadMismatch: the same key with other content. A bug of the caller.
	ErrPayloadMismatch = errors.New("the same key was used with another payload")
	// ErrLeaseLost: another holder took over; this one recorded nothing more.
	ErrLeaseLost = errors.New("the lease was lost to another holder")
	// ErrDefinitionChanged: the run was started by an incompatible declaration.
	ErrDefinitionChanged = errors.New("the run was started by an incompatible definition")
	// ErrInvalidKey: a malformed key.
	ErrInvalidKey = state.ErrInvalidKey
	// ErrInvalidInput: input that can't be encoded or hashed.
	ErrInvalidInput = state.ErrInvalidInput
	// ErrTooLarge: over the store's limit.
	ErrTooLarge = state.ErrTooLarge
	// ErrStore: the store failed. Nothing runs while it can't be reached.
	ErrStore = errors.New("the store failed")
	// ErrNotFound: no such run.
	ErrNotFound = state.ErrNotFound
	// ErrNotAllowed: not possible in the run's status.
	ErrNotAllowed = state.ErrNotAllowed
	// ErrInvalidDefinition: what New says of a declaration or an option that can't work.
	ErrInvalidDefinition = errors.New("invalid definition")
)

// Codes that the library gives to failures that no step's code names.
const (
	// CodeCancelled: undone because of a cancel request.
	CodeCancelled = "cancelled"
	// CodeDeadline: the definition's Deadline has passed.
	CodeDeadline = "deadline_exceeded"
	// CodeReversed: undone on purpose after completion.
	CodeReversed = "reversed"
	// CodeWhen: a step's When could not be evaluated.
	CodeWhen = "when_failed"
	// CodeMaxAttempts: the last attempt that MaxAttempts allows has failed.
	CodeMaxAttempts = "max_attempts"
	// CodeUnresolved: nobody knows whether an at-most-once step happened.
	CodeUnresolved = "unresolved"
	// CodeKeyExpired: the participant may have forgotten the step's key (KeyValid).
	CodeKeyExpired = "key_expired"
	// CodeUnrecordable: the step was done, but its result can't be recorded.
	CodeUnrecordable = "unrecordable_result"
	// CodePayloadLost: a payload that the run needs is gone from the store, which kept the rest of the record.
	CodePayloadLost = "payload_lost"
	// CodeInvalidMessage: the step emitted a message that can't be stored.
	CodeInvalidMessage = "invalid_message"
)

// Error is every error of this package that belongs to a run. It wraps its Kind and its cause.
type Error struct {
	// Kind is one of the sentinels, such as ErrInterrupted.
	Kind error
	// Key of the run.
	Key Key
	// Step at hand; empty when it is none.
	Step string
	// Code of the failure, given by steps.WithCode or one of the Code constants; may be empty.
	Code string
	// RetryAfter is how long to wait before calling again; 0: at once.
	RetryAfter time.Duration
	// NotUndone are the steps whose effect stands, or may stand, although the run went backwards.
	NotUndone []string
	// Err is the cause; may be nil.
	Err error
}

// Error says what went wrong, where, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("saga: run ")
	b.WriteString(e.Key.String())
	if e.Step != "" {
		fmt.Fprintf(&b, ", step %s", e.Step)
	}
	fmt.Fprintf(&b, ": %v", e.Kind)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Err != nil && e.Err != e.Kind {
		b.WriteString(": ")
		b.WriteString(strings.TrimPrefix(fmt.Sprint(e.Err), fmt.Sprint(e.Kind)+": ")) // a cause of the same class says it again
	}
	if len(e.NotUndone) > 0 {
		fmt.Fprintf(&b, "; not undone: %s", strings.Join(e.NotUndone, ", "))
	}
	if todo := advice(e.Kind); todo != "" {
		b.WriteString("; ")
		b.WriteString(todo)
		if after := e.RetryAfter.Round(time.Millisecond); after > 0 {
			fmt.Fprintf(&b, " after %v", after)
		}
	}
	return b.String()
}

// Unwrap gives the kind and the cause. In a cause that holds the error of another run, as when a step runs a saga and
// hands its error on, errors.Is does not find the other's Kind: what it tells is about this run. Err has it.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, beside(e.Err)}
}

func advice(kind error) string {
	switch kind {
	case ErrInProgress, ErrLeaseLost, ErrInterrupted:
		return "call again with the same key"
	case ErrBlocked:
		return "an operator is needed"
	case ErrDefinitionChanged:
		return "deploy a definition that continues the stored plan, or give the changed one another Version and keep the old one with Previous"
	case ErrStore:
		return "nothing ran; call again with the same key"
	}
	return ""
}

// failureError is a failure with its stored words, so that a replay in another process reads the same. It wraps the
// error that WithErrors gives for its code and, in the run that met it, the original.
type failureError struct {
	message string
	mapped  error
	live    error
}

func (e *failureError) Error() string { return e.message }

func (e *failureError) Unwrap() []error {
	var out []error
	if e.mapped != nil {
		out = append(out, e.mapped)
	}
	if e.live != nil {
		out = append(out, e.live)
	}
	return out
}

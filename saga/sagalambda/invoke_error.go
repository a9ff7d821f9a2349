package sagalambda

import (
	"errors"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// callError is a run's error under a type of another name.
type callError struct{ err error }

// Error is the run's error.
func (e callError) Error() string { return e.err.Error() }

// Unwrap gives the run's error.
func (e callError) Unwrap() error { return e.err }

// named gives the error of a run a type that is called like its kind. Lambda tells the caller the type's name, which is all
// that a state machine can decide by.
func named(err error) error {
	type (
		InProgress        struct{ callError }
		Interrupted       struct{ callError }
		Failed            struct{ callError }
		Reversed          struct{ callError }
		Blocked           struct{ callError }
		PayloadMismatch   struct{ callError }
		LeaseLost         struct{ callError }
		DefinitionChanged struct{ callError }
		InvalidKey        struct{ callError }
		InvalidInput      struct{ callError }
		TooLarge          struct{ callError }
		StoreFailed       struct{ callError }
		NotFound          struct{ callError }
		NotAllowed        struct{ callError }
	)
	e := callError{err}
	kind := kindOf(err)
	for _, row := range []struct {
		kind error
		as   error
	}{
		{saga.ErrInProgress, InProgress{e}}, {saga.ErrInterrupted, Interrupted{e}}, {saga.ErrFailed, Failed{e}},
		{saga.ErrReversed, Reversed{e}}, {saga.ErrBlocked, Blocked{e}}, {saga.ErrPayloadMismatch, PayloadMismatch{e}},
		{saga.ErrLeaseLost, LeaseLost{e}}, {saga.ErrDefinitionChanged, DefinitionChanged{e}}, {saga.ErrInvalidKey, InvalidKey{e}},
		{saga.ErrInvalidInput, InvalidInput{e}}, {saga.ErrTooLarge, TooLarge{e}}, {saga.ErrStore, StoreFailed{e}},
		{saga.ErrNotFound, NotFound{e}}, {saga.ErrNotAllowed, NotAllowed{e}},
	} {
		if errors.Is(kind, row.kind) {
			return row.as
		}
	}
	return err
}

package saga

import (
	"errors"
	"slices"

	"github.com/cenkalti/backoff/v4"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// kinds are those that an [*Error] may have, and [ErrInvalidDefinition].
var kinds = []error{
	ErrInProgress, ErrInterrupted, ErrFailed, ErrReversed, ErrBlocked, ErrPayloadMismatch, ErrLeaseLost, ErrDefinitionChanged,
	ErrInvalidKey, ErrInvalidInput, ErrTooLarge, ErrStore, ErrNotFound, ErrNotAllowed, ErrInvalidDefinition,
}

// besideNested is the cause of an error of a run, when there is the error of another run in it: a step may run a saga and
// hand its error on. It is of no kind that only the other error has, since errors.Is must tell what became of the caller's
// own run: a run that is interrupted has not failed because a saga in one of its steps has. Everything else of it is found.
type besideNested struct{ err error }

// beside is err as it is, unless another run's error is in it.
func beside(err error) error {
	var nested *Error
	if !errors.As(err, &nested) {
		return err
	}
	return besideNested{err}
}

func (e besideNested) Error() string { return e.err.Error() }

// Is is errors.Is, but for the kinds of what is nested.
func (e besideNested) Is(target error) bool {
	if !slices.Contains(kinds, target) {
		return errors.Is(e.err, target)
	}
	return anyBeside(e.err, func(one error) bool {
		is, ok := one.(interface{ Is(error) bool })
		return one == target || ok && is.Is(target)
	})
}

// As is errors.As.
func (e besideNested) As(target any) bool { return errors.As(e.err, target) }

// anyBeside tells whether found says yes to one of the errors that err is made of, another run's error and what is in it
// left out.
func anyBeside(err error, found func(error) bool) bool {
	if _, nested := err.(*Error); nested || err == nil { //nolint:errorlint // this very one, not what it wraps
		return false
	}
	if found(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() error }:
		return anyBeside(e.Unwrap(), found)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(one error) bool { return anyBeside(one, found) })
	}
	return false
}

// nestedIn is the error of another run in a user's error, whose methods may panic.
func nestedIn(err error) (nested *Error) {
	defer func() {
		if recover() != nil {
			nested = nil
		}
	}()
	errors.As(err, &nested)
	return nested
}

// marksPermanent tells whether this very error is a mark that steps.IsPermanent looks for.
func marksPermanent(one error) bool {
	switch e := one.(type) { //nolint:errorlint // what it wraps may be another run's
	case *drive.Permanent:
		return true
	case *backoff.PermanentError:
		return e != nil
	}
	return false
}

// permanent tells whether a user's error is definite. The failure of another run is, in the call that met it and as well
// when it is replayed; stands tells that not all of that run was undone. Any other error of another run is not definite,
// whatever its steps have said: one that is blocked by a definite error has not been undone.
func permanent(err error) (yes, stands bool) {
	nested := nestedIn(err)
	if nested == nil {
		return steps.IsPermanent(err), false
	}
	if anyBeside(err, marksPermanent) {
		return true, false
	}
	return errors.Is(nested.Kind, ErrFailed), len(nested.NotUndone) > 0
}

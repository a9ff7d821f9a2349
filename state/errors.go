package state

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound: no such run, or its record has expired.
	ErrNotFound = errors.New("no such run")
	// ErrConflict is the class of a refused fenced write; the error is a [*ConflictError].
	ErrConflict = errors.New("the record was changed by someone else")
	// ErrTooLarge: over the store's limit. Nothing was written.
	ErrTooLarge = errors.New("over the store's size limit")
	// ErrUnsupported: the store can't do that; see [Capabilities].
	ErrUnsupported = errors.New("not supported by this store")
	// ErrNotAllowed: not possible in the run's status.
	ErrNotAllowed = errors.New("not allowed in this status")
	// ErrInvalidInput: a payload that can't be encoded or hashed.
	ErrInvalidInput = errors.New("invalid input")
	// ErrNewerRecord: the record was written by a later version of the library.
	ErrNewerRecord = errors.New("the record was written by a newer version of the library")
	// ErrCorrupt: what is stored can't be read as a record.
	ErrCorrupt = errors.New("the stored record can't be read")
)

// ConflictError is a refused fenced write.
type ConflictError struct {
	// Key of the record.
	Key string
	// Current is the record as it is; nil when there is none (any more). The receiver may keep and change it.
	Current *Record
}

// Error says what is stored, without any payload.
func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("run %s: %v: the record is gone", e.Key, ErrConflict)
	}
	return fmt.Sprintf("run %s: %v: it is %s at revision %d", e.Key, ErrConflict, e.Current.Status, e.Current.Revision)
}

// Is makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

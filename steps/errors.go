package steps

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// Permanent marks an error as definite: this attempt did not take effect, and trying again is no use. Nil stays nil. It
// is found through %w and errors.Join, and backoff's PermanentError means the same.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{Err: err}
}

type permanentError = drive.Permanent

// IsPermanent tells whether the error is marked as definite, by this package or by backoff.
func IsPermanent(err error) bool {
	if _, ok := find[*permanentError](err); ok {
		return true
	}
	theirs, ok := find[*backoff.PermanentError](err)
	return ok && theirs != nil
}

// find is errors.As. An error whose methods panic, such as a typed nil of backoff's, is of no class.
func find[T error](err error) (found T, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	ok = errors.As(err, &found)
	return found, ok
}

// RetryAfter marks a transient error: the step is not tried again before d has passed, by this run or another. A nil err
// stands for "not yet"; a negative d for 0.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errNotYet
	}
	return &retryAfterError{err, max(d, 0)}
}

var errNotYet = errors.New("not yet, come back later")

type retryAfterError struct {
	err error
	d   time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// Delay is what RetryAfter asked for, if it did.
func Delay(err error) (time.Duration, bool) {
	if e, ok := find[*retryAfterError](err); ok {
		return e.d, true
	}
	return 0, false
}

// WithCode gives an error a code that survives storage, such as "card_declined". Nil stays nil. The class of the error is
// not changed.
func WithCode(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{err, code}
}

type codeError struct {
	err  error
	code string
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// Code is the code given by WithCode, the outermost if there are several; empty without one.
func Code(err error) string {
	if e, ok := find[*codeError](err); ok {
		return e.code
	}
	return ""
}

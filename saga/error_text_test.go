package saga_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

type brokenError struct{}

func (brokenError) Error() string { panic("no text") }

func TestAnErrorSaysWhatWhereAndWhatToDo(t *testing.T) {
	key := saga.Key{Tenant: "t", Operation: "op", ID: "1"}
	for want, err := range map[string]*saga.Error{
		"saga: run t#op#1: invalid key: the ID is empty": {Kind: saga.ErrInvalidKey, Key: key, Err: fmt.Errorf("%w: the ID is empty", saga.ErrInvalidKey)},
		"saga: run t#op#1: no such run":                  {Kind: saga.ErrNotFound, Key: key, Err: saga.ErrNotFound},
		"saga: run t#op#1, step a: interrupted: down; call again with the same key after 1s": {
			Kind: saga.ErrInterrupted, Key: key, Step: "a", RetryAfter: time.Second, Err: errors.New("down")},
		"saga: run t#op#1, step b: failed (declined): no; not undone: a, b": {
			Kind: saga.ErrFailed, Key: key, Step: "b", Code: "declined", NotUndone: []string{"a", "b"}, Err: errors.New("no")},
		"saga: run t#op#1: in progress elsewhere; come back later after 2s": {Kind: saga.ErrInProgress, Key: key, RetryAfter: 2 * time.Second},
	} {
		assert.EqualError(t, err, want)
	}
	assert.NotPanics(t, func() { _ = (&saga.Error{Kind: saga.ErrFailed, Err: brokenError{}}).Error() })
	assert.NotPanics(t, func() { _ = (&saga.Error{Err: errors.New("x")}).Error() })
}

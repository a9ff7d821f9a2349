package saga_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
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
		"saga: run t#op#1: in progress elsewhere; call again with the same key after 2s": {Kind: saga.ErrInProgress, Key: key, RetryAfter: 2 * time.Second},
	} {
		assert.EqualError(t, err, want)
	}
	assert.NotPanics(t, func() { _ = (&saga.Error{Kind: saga.ErrFailed, Err: brokenError{}}).Error() })
	assert.NotPanics(t, func() { _ = (&saga.Error{Err: errors.New("x")}).Error() })
}

// Without the operation it would look up a run that there never is, and say that it is not there.
func TestAnOperatorsKeyNamesTheOperation(t *testing.T) {
	desk := saga.NewOperator(memory.New())
	for name, err := range map[string]error{
		"Get":    func() error { _, err := desk.Get(t.Context(), saga.Key{ID: "1"}); return err }(),
		"Cancel": desk.Cancel(t.Context(), saga.Key{ID: "1"}, "why"),
		"Retry":  desk.Retry(t.Context(), saga.Key{ID: "1"}, "why"),
		"no ID":  desk.Retry(t.Context(), saga.Key{Operation: "op"}, "why"),
	} {
		assert.ErrorIs(t, err, saga.ErrInvalidKey, name)
	}
	assert.ErrorIs(t, desk.Retry(t.Context(), saga.Key{Operation: "op", ID: "1"}, "why"), saga.ErrNotFound)
}

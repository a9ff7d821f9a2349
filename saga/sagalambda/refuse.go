package sagalambda

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Refusal is why no key and input can be made of a record, in words that may stand in a log: they must not quote the
// record. Of any other error of such a function only the type is told. Keyed literals only.
type Refusal struct {
	_ struct{}

	// Reason, for the log.
	Reason string
	// Err is the cause, which is never shown; may be nil.
	Err error
}

// Error is the reason.
func (e *Refusal) Error() string { return e.Reason }

// Unwrap gives the cause.
func (e *Refusal) Unwrap() error { return e.Err }

// MalformedError is what the handlers return for a record of which no key and input can be made. Its text never quotes the
// record.
type MalformedError struct {
	// ID of the record; may be empty.
	ID string
	// Err is the error of the function that makes the key and the input.
	Err error
}

// Error says which record it is, and the reason of a [Refusal], or that the function did not return.
func (e *MalformedError) Error() string {
	what := "the event"
	if e.ID != "" {
		what = "record " + e.ID
	}
	return fmt.Sprintf("sagalambda: no run can be made of %s: %s", what, reason(e.Err))
}

// Unwrap gives the cause.
func (e *MalformedError) Unwrap() error { return e.Err }

func reason(err error) string {
	var refused *Refusal
	if errors.As(err, &refused) && refused != nil {
		return refused.Reason
	}
	var m *mishap
	if errors.As(err, &m) {
		return m.text()
	}
	return fmt.Sprintf("an error of type %T, whose text may quote it and is not shown (a *sagalambda.Refusal's is)", err)
}

// decode decodes one JSON value. Duplicate names and invalid UTF-8 are refused; members that T has no field for are
// passed over, since senders add some; integers take 1.0; and a number in an interface is a json.Number, so that it stays
// exact. Its errors are Refusals.
func decode[T any](raw []byte) (T, error) {
	var v T
	canonical, err := state.Canonical(raw)
	if err != nil {
		return v, &Refusal{Reason: "its JSON is refused: " + strings.TrimPrefix(err.Error(), state.ErrInvalidInput.Error()+": "), Err: err}
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return v, &Refusal{Reason: whyNot(err), Err: fmt.Errorf("%w: %w", saga.ErrInvalidInput, err)}
	}
	return v, nil
}

// whyNot says why JSON can't be decoded, without a word of its values.
func whyNot(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return "its JSON is not what the operation takes"
	}
	value, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	if wrong.Field == "" {
		return fmt.Sprintf("the operation can't take a JSON %s", value)
	}
	return fmt.Sprintf("%q can't take this JSON %s", state.Cut(wrong.Field), value)
}

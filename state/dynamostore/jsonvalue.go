package dynamostore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/state"
)

type failureJSON struct {
	Step      string   `json:"step,omitempty"`
	Code      string   `json:"code,omitempty"`
	Message   string   `json:"message,omitempty"`
	NotUndone []string `json:"not_undone,omitempty"`
	At        *int64   `json:"at,omitempty"`
}

func toFailure(f *state.Failure) *failureJSON {
	if f == nil {
		return nil
	}
	return &failureJSON{Step: f.Step, Code: f.Code, Message: f.Message, NotUndone: f.NotUndone, At: ms(f.At)}
}

func (f *failureJSON) failure() *state.Failure {
	if f == nil {
		return nil
	}
	return &state.Failure{Step: f.Step, Code: f.Code, Message: f.Message, NotUndone: f.NotUndone, At: fromMS(f.At)}
}

type cancelJSON struct {
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"`
	At     *int64 `json:"at,omitempty"`
}

func toCancel(c *state.CancelRequest) *cancelJSON {
	return &cancelJSON{Reason: c.Reason, Actor: c.Actor, At: ms(c.At)}
}

func (c *cancelJSON) cancel() *state.CancelRequest {
	return &state.CancelRequest{Reason: c.Reason, Actor: c.Actor, At: fromMS(c.At)}
}

type auditJSON struct {
	At    *int64 `json:"at,omitempty"`
	Actor string `json:"actor,omitempty"`
	Verb  string `json:"verb,omitempty"`
	Step  string `json:"step,omitempty"`
	Note  string `json:"note,omitempty"`
}

func toAudit(a state.AuditEntry) auditJSON {
	return auditJSON{At: ms(a.At), Actor: a.Actor, Verb: a.Verb, Step: a.Step, Note: a.Note}
}

func (a auditJSON) entry() state.AuditEntry {
	return state.AuditEntry{At: fromMS(a.At), Actor: a.Actor, Verb: a.Verb, Step: a.Step, Note: a.Note}
}

// encodeJSON is v, one of the structs above, without the escapes that only browsers need.
func encodeJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "null" // strings and integers can always be encoded
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func decodeJSON(what, text string, v any) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%w: %s: %w", state.ErrCorrupt, what, err)
	}
	return nil
}

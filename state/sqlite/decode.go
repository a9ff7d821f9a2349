package sqlite

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// The stored forms of a record's parts; the encoder writes them.
type (
	storedStep struct {
		Index        int              `json:"i"`
		Name         string           `json:"name"`
		Status       state.StepStatus `json:"status"`
		Attempts     int              `json:"attempts"`
		Unknown      bool             `json:"unknown"`
		Output       json.RawMessage  `json:"output"`
		OutputText   *string          `json:"output_text"`
		OutputBase64 []byte           `json:"output_base64"`
		OutputSize   *int             `json:"output_size"`
		Error        *storedFailure   `json:"error"`
		UndoAttempts int              `json:"undo_attempts"`
		UndoError    *storedFailure   `json:"undo_error"`
		StartedAt    *int64           `json:"started_at"`
		EndedAt      *int64           `json:"ended_at"`
	}

	storedFailure struct {
		Step      string   `json:"step"`
		Code      string   `json:"code"`
		Message   string   `json:"message"`
		NotUndone []string `json:"not_undone"`
		At        *int64   `json:"at"`
	}

	storedCancel struct {
		Reason string `json:"reason"`
		Actor  string `json:"actor"`
		At     *int64 `json:"at"`
	}

	storedAudit struct {
		Actor string `json:"actor"`
		Verb  string `json:"verb"`
		Step  string `json:"step"`
		Note  string `json:"note"`
		At    *int64 `json:"at"`
	}

	storedMessage struct {
		ID          string            `json:"id"`
		Topic       string            `json:"topic"`
		Key         string            `json:"key"`
		Type        string            `json:"type"`
		ContentType string            `json:"content_type"`
		Attributes  map[string]string `json:"attributes"`
		Body        json.RawMessage   `json:"body"`
		BodyText    *string           `json:"body_text"`
		BodyBase64  []byte            `json:"body_base64"`
		BodySize    *int              `json:"body_size"`
		Time        *int64            `json:"time"`
		Parked      string            `json:"parked"`
	}
)

func fromMilli(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}

// decodeLog decodes a column that is a JSON array but for its brackets, each entry behind a comma.
func decodeLog(text []byte, into any) error {
	if len(text) == 0 {
		return nil
	}
	b := make([]byte, 0, len(text)+1)
	b = append(append(append(b, '['), text[1:]...), ']')
	return json.Unmarshal(b, into)
}

func (f *storedFailure) failure() *state.Failure {
	if f == nil {
		return nil
	}
	return &state.Failure{Step: f.Step, Code: f.Code, Message: f.Message, NotUndone: f.NotUndone, At: fromMilli(f.At)}
}

// parts are the payloads of a run that have rows of their own, by part.
type parts map[string][]byte

var (
	errIndex   = errors.New("a step beyond the last")
	errPayload = errors.New("a payload is missing or cut")
)

// value is the inverse of the encoder's.
func (p parts) value(raw json.RawMessage, text *string, base64 []byte, size *int, part func() string) ([]byte, error) {
	switch {
	case size != nil:
		data := p[part()]
		if len(data) != *size {
			return nil, errPayload
		}
		return data, nil
	case text != nil:
		return []byte(*text), nil
	case base64 != nil:
		return base64, nil
	}
	return raw, nil
}

// decodeSteps folds the log of steps over a plan whose steps are all pending: the last entry of a step counts.
func decodeSteps(log []byte, plan []string, count int, p parts) ([]state.StepRecord, error) {
	var entries []storedStep
	if err := decodeLog(log, &entries); err != nil {
		return nil, err
	}
	last := make([]*storedStep, count)
	for i := range entries {
		s := &entries[i]
		if s.Index < 0 || s.Index >= count {
			return nil, errIndex
		}
		last[s.Index] = s
	}
	steps := make([]state.StepRecord, count)
	for i, s := range last {
		if s == nil {
			if i >= len(plan) {
				return nil, errIndex
			}
			steps[i] = state.StepRecord{Name: plan[i], Status: state.StepPending}
			continue
		}
		output, err := p.value(s.Output, s.OutputText, s.OutputBase64, s.OutputSize, func() string { return partStep(i) })
		if err != nil {
			return nil, err
		}
		steps[i] = state.StepRecord{
			Name: s.Name, Status: s.Status, Attempts: s.Attempts, Unknown: s.Unknown, Output: output,
			Error: s.Error.failure(), UndoAttempts: s.UndoAttempts, UndoError: s.UndoError.failure(),
			StartedAt: fromMilli(s.StartedAt), EndedAt: fromMilli(s.EndedAt),
		}
	}
	return steps, nil
}

func decodeMessages(log []byte, p parts) ([]state.OutboxMessage, error) {
	var entries []storedMessage
	if err := decodeLog(log, &entries); err != nil {
		return nil, err
	}
	messages := make([]state.OutboxMessage, 0, len(entries))
	for i := range entries {
		m := &entries[i]
		body, err := p.value(m.Body, m.BodyText, m.BodyBase64, m.BodySize, func() string { return partMessage(m.ID) })
		if err != nil {
			return nil, err
		}
		messages = append(messages, state.OutboxMessage{Parked: m.Parked, Message: outbox.Message{
			ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, ContentType: m.ContentType, Attributes: m.Attributes, Body: body,
			Time: fromMilli(m.Time),
		}})
	}
	return messages, nil
}

func decodeFailure(text []byte) (*state.Failure, error) {
	if text == nil {
		return nil, nil
	}
	var f storedFailure
	err := json.Unmarshal(text, &f)
	return f.failure(), err
}

func decodeCancel(text []byte) (*state.CancelRequest, error) {
	if text == nil {
		return nil, nil
	}
	var c storedCancel
	err := json.Unmarshal(text, &c)
	return &state.CancelRequest{Reason: c.Reason, Actor: c.Actor, At: fromMilli(c.At)}, err
}

func decodeAudit(text []byte) ([]state.AuditEntry, error) {
	if text == nil {
		return nil, nil
	}
	var entries []storedAudit
	err := json.Unmarshal(text, &entries)
	audit := make([]state.AuditEntry, 0, len(entries))
	for _, a := range entries {
		audit = append(audit, state.AuditEntry{At: fromMilli(a.At), Actor: a.Actor, Verb: a.Verb, Step: a.Step, Note: a.Note})
	}
	return audit, err
}

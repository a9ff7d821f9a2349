package sqlite

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// parts are the payloads of a run that have rows of their own, by part.
type parts map[string][]byte

var (
	errIndex   = errors.New("a step that is not in the plan")
	errPayload = errors.New("a payload is missing or cut")
)

// storedPayload is a payload on its way back; see the encoder's.
type storedPayload struct {
	raw  []byte
	size int // of what has a row of its own; inline: it has none
}

const (
	inline = -1
	absent = -2 // there is not even an entry
)

// take reads the member with this name if it is one of the payload's.
func (v *storedPayload) take(p *parser, member string) {
	switch member {
	case "text":
		v.raw = []byte(p.text())
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(p.text())
		if err != nil {
			p.fail()
		}
		v.raw = raw
	case "size":
		v.size = int(p.int())
	default:
		p.fail()
	}
}

func (v *storedPayload) whole(p parts, part func() string) ([]byte, error) {
	if v.size < 0 {
		return v.raw, nil
	}
	data := p[part()]
	if len(data) != v.size {
		return nil, errPayload
	}
	return data, nil
}

func decodeHead(text []byte, rec *state.Record) error {
	p := parser{b: text}
	p.expect('[')
	rec.WriteID = p.text()
	p.expect(',')
	rec.Runs = int(p.int())
	p.expect(',')
	rec.CurrentStep = p.text()
	p.expect(',')
	rec.LeaseUntil = p.time()
	p.expect(',')
	rec.UpdatedAt = p.time()
	if p.at(',') {
		p.object(func(name string) {
			switch name {
			case "ends_as":
				rec.EndsAs = state.Status(p.text())
			case "not_before":
				rec.NotBefore = p.time()
			case "failure":
				rec.Failure = p.failure()
			default:
				p.fail()
			}
		})
	}
	p.expect(']')
	return p.err
}

func (p *parser) failure() *state.Failure {
	f := &state.Failure{}
	p.object(func(name string) {
		switch name {
		case "step":
			f.Step = p.text()
		case "code":
			f.Code = p.text()
		case "message":
			f.Message = p.text()
		case "not_undone":
			f.NotUndone = p.texts()
		case "at":
			f.At = p.time()
		default:
			p.fail()
		}
	})
	return f
}

// decodeSteps folds the log of steps over a plan whose steps are all pending: the last entry of a step counts.
func decodeSteps(log []byte, plan []string, count int, large parts) ([]state.StepRecord, error) {
	if count < 0 || count > len(plan)+len(log) {
		return nil, errIndex
	}
	steps := make([]state.StepRecord, count)
	outputs := make([]storedPayload, count)
	for i := range steps {
		if i < len(plan) {
			steps[i] = state.StepRecord{Name: plan[i], Status: state.StepPending}
			outputs[i].size = inline
		} else {
			outputs[i].size = absent
		}
	}
	for p := (parser{b: log}); p.i < len(log); {
		p.expect(',')
		p.expect('[')
		i := p.int()
		if i < 0 || i >= int64(count) {
			return nil, errIndex
		}
		var name string
		if int(i) < len(plan) {
			name = plan[i]
		}
		steps[i], outputs[i] = p.step(name)
		if p.err != nil {
			return nil, p.err
		}
	}
	for i := range steps {
		if outputs[i].size == absent {
			return nil, errIndex
		}
		var err error
		if steps[i].Output, err = outputs[i].whole(large, func() string { return partStep(i) }); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// step reads an entry behind its index.
func (p *parser) step(name string) (s state.StepRecord, output storedPayload) {
	s.Name, output.size = name, inline
	p.expect(',')
	s.Status = state.StepStatus(p.text())
	p.expect(',')
	s.Attempts = int(p.int())
	p.expect(',')
	s.StartedAt = p.time()
	p.expect(',')
	s.EndedAt = p.until(s.StartedAt)
	p.expect(',')
	if !p.at('0') {
		p.rest(&s, &output)
	}
	if p.at(',') {
		output.raw = p.raw()
	}
	p.expect(']')
	return s, output
}

// until is the inverse of the encoder's since.
func (p *parser) until(from time.Time) time.Time {
	if p.null() {
		return time.Time{}
	}
	ms := p.int()
	if !from.IsZero() {
		ms += from.UnixMilli()
	}
	return time.UnixMilli(ms).UTC()
}

func (p *parser) rest(s *state.StepRecord, output *storedPayload) {
	p.object(func(name string) {
		switch name {
		case "name":
			s.Name = p.text()
		case "unknown":
			s.Unknown = string(p.raw()) == "true"
		case "error":
			s.Error = p.failure()
		case "undo_attempts":
			s.UndoAttempts = int(p.int())
		case "undo_error":
			s.UndoError = p.failure()
		case "output_text", "output_base64", "output_size":
			output.take(p, name[len("output_"):])
		default:
			p.fail()
		}
	})
}

func decodeMessages(log []byte, large parts) (messages []state.OutboxMessage, err error) {
	for p := (parser{b: log}); p.i < len(log); {
		p.expect(',')
		m, body := p.message()
		if p.err != nil {
			return nil, p.err
		}
		data, err := body.whole(large, func() string { return partMessage(m.ID) })
		if err != nil {
			return nil, err
		}
		m.Body = data
		messages = append(messages, m)
	}
	return messages, nil
}

func (p *parser) message() (m state.OutboxMessage, body storedPayload) {
	body.size = inline
	p.object(func(name string) {
		switch name {
		case "id":
			m.ID = p.text()
		case "topic":
			m.Topic = p.text()
		case "key":
			m.Key = p.text()
		case "type":
			m.Type = p.text()
		case "content_type":
			m.ContentType = p.text()
		case "attributes":
			m.Attributes = map[string]string{}
			p.object(func(name string) { m.Attributes[name] = p.text() })
		case "body":
			body.raw = p.raw()
		case "body_text", "body_base64", "body_size":
			body.take(p, name[len("body_"):])
		case "time":
			m.Time = p.time()
		case "parked":
			m.Parked = p.text()
		default:
			p.fail()
		}
	})
	return m, body
}

func decodeCancel(text []byte) (*state.CancelRequest, error) {
	if text == nil {
		return nil, nil
	}
	c, p := &state.CancelRequest{}, parser{b: text}
	p.object(func(name string) {
		switch name {
		case "reason":
			c.Reason = p.text()
		case "actor":
			c.Actor = p.text()
		case "at":
			c.At = p.time()
		default:
			p.fail()
		}
	})
	return c, p.err
}

func decodeAudit(text []byte) (audit []state.AuditEntry, err error) {
	if text == nil {
		return nil, nil
	}
	p := parser{b: text}
	p.expect('[')
	for more := !p.at(']'); more; more = p.more(']') {
		var a state.AuditEntry
		p.object(func(name string) {
			switch name {
			case "actor":
				a.Actor = p.text()
			case "verb":
				a.Verb = p.text()
			case "step":
				a.Step = p.text()
			case "note":
				a.Note = p.text()
			case "at":
				a.At = p.time()
			default:
				p.fail()
			}
		})
		audit = append(audit, a)
	}
	return audit, p.err
}

func decodePlan(text []byte) ([]string, error) {
	p := parser{b: text}
	plan := p.texts()
	return plan, p.err
}

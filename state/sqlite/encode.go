package sqlite

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// inlineLimit is the longest payload that is kept in the run's own row. Longer ones have a row of their own, so that
// they are written once, and not again with each step: SQLite writes a whole row whatever part of it has changed. It is
// small enough for a row of five steps to fit in a page, and for JSON nested 500 deep to be read by SQLite's functions.
const inlineLimit = 1024

// payload is a part of a record that is too long for the run's row.
type payload struct {
	part string
	data []byte
}

const (
	partInput    = "input"
	partResponse = "response"
)

func partStep(i int) string { return "step/" + strconv.Itoa(i) }

func partMessage(id string) string { return "message/" + id }

// encoder appends the stored forms of a record's parts to buf, and collects the payloads that don't fit.
type encoder struct {
	buf   []byte
	large []payload
}

func (e *encoder) reset() {
	e.buf, e.large = e.buf[:0], e.large[:0]
}

func (e *encoder) raw(s string) { e.buf = append(e.buf, s...) }

// field begins a member of an object, other than the first.
func (e *encoder) field(name string) {
	e.buf = append(e.buf, ',', '"')
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, '"', ':')
}

const lowerHex = "0123456789abcdef"

// text appends s as a JSON string. Bytes that are no UTF-8 stay as they are.
func (e *encoder) text(s string) {
	b := append(e.buf, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		if c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = append(b, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
		}
		start = i + 1
	}
	b = append(b, s[start:]...)
	e.buf = append(b, '"')
}

func (e *encoder) texts(list []string) {
	e.raw("[")
	for i, s := range list {
		if i > 0 {
			e.raw(",")
		}
		e.text(s)
	}
	e.raw("]")
}

func (e *encoder) textField(name, s string) {
	if s != "" {
		e.field(name)
		e.text(s)
	}
}

func (e *encoder) intField(name string, n int64) {
	if n != 0 {
		e.field(name)
		e.buf = strconv.AppendInt(e.buf, n, 10)
	}
}

func (e *encoder) timeField(name string, t time.Time) {
	if !t.IsZero() {
		e.field(name)
		e.buf = strconv.AppendInt(e.buf, t.UnixMilli(), 10)
	}
}

// steps appends the log of all steps. Those that are pending and nothing else follow from the plan.
func (e *encoder) steps(plan []string, steps []state.StepRecord) {
	for i := range steps {
		if i >= len(plan) || !untouched(&steps[i], plan[i]) {
			e.step(i, &steps[i])
		}
	}
}

func untouched(s *state.StepRecord, name string) bool {
	return s.Name == name && s.Status == state.StepPending && s.Attempts == 0 && !s.Unknown && s.Output == nil && s.Error == nil &&
		s.UndoAttempts == 0 && s.UndoError == nil && s.StartedAt.IsZero() && s.EndedAt.IsZero()
}

// step appends an entry of the log of steps. An entry stands behind a comma, so that a log is a JSON array but for its
// brackets.
func (e *encoder) step(i int, s *state.StepRecord) {
	e.raw(`,{"i":`)
	e.buf = strconv.AppendInt(e.buf, int64(i), 10)
	e.field("name")
	e.text(s.Name)
	e.field("status")
	e.text(string(s.Status))
	e.intField("attempts", int64(s.Attempts))
	if s.Unknown {
		e.raw(`,"unknown":true`)
	}
	if s.Output != nil {
		e.value("output", s.Output, func() string { return partStep(i) })
	}
	e.failureField("error", s.Error)
	e.intField("undo_attempts", int64(s.UndoAttempts))
	e.failureField("undo_error", s.UndoError)
	e.timeField("started_at", s.StartedAt)
	e.timeField("ended_at", s.EndedAt)
	e.raw("}")
}

// value appends a payload in the form in which it comes back byte by byte: as it is where that is JSON without space
// around it, otherwise as a text, or in base64; a long one as its size alone.
func (e *encoder) value(name string, v []byte, part func() string) {
	switch {
	case len(v) > inlineLimit:
		e.large = append(e.large, payload{part(), v})
		e.field(name + "_size")
		e.buf = strconv.AppendInt(e.buf, int64(len(v)), 10)
	case bare(v):
		e.field(name)
		e.buf = append(e.buf, v...)
	case utf8.Valid(v):
		e.field(name + "_text")
		e.text(string(v))
	default:
		e.field(name + "_base64")
		e.raw(`"`)
		e.buf = base64.StdEncoding.AppendEncode(e.buf, v)
		e.raw(`"`)
	}
}

// bare tells whether v is JSON that begins and ends with its first and last byte.
func bare(v []byte) bool {
	return len(v) > 0 && v[0] > ' ' && v[len(v)-1] > ' ' && json.Valid(v)
}

func (e *encoder) failureField(name string, f *state.Failure) {
	if f != nil {
		e.field(name)
		e.failure(f)
	}
}

func (e *encoder) failure(f *state.Failure) {
	e.raw(`{"step":`)
	e.text(f.Step)
	e.textField("code", f.Code)
	e.textField("message", f.Message)
	if len(f.NotUndone) > 0 {
		e.field("not_undone")
		e.texts(f.NotUndone)
	}
	e.timeField("at", f.At)
	e.raw("}")
}

func (e *encoder) cancel(c *state.CancelRequest) {
	e.raw(`{"reason":`)
	e.text(c.Reason)
	e.textField("actor", c.Actor)
	e.timeField("at", c.At)
	e.raw("}")
}

func (e *encoder) audit(entries []state.AuditEntry) {
	for i, a := range entries {
		e.opening(i, '[')
		e.raw(`{"actor":`)
		e.text(a.Actor)
		e.textField("verb", a.Verb)
		e.textField("step", a.Step)
		e.textField("note", a.Note)
		e.timeField("at", a.At)
		e.raw("}")
	}
	e.raw("]")
}

// message appends an entry of the log of unsent messages; see step.
func (e *encoder) message(m *outbox.Message, parked string) {
	e.raw(`,{"id":`)
	e.text(m.ID)
	e.textField("topic", m.Topic)
	e.textField("key", m.Key)
	e.textField("type", m.Type)
	e.textField("content_type", m.ContentType)
	if len(m.Attributes) > 0 {
		e.field("attributes")
		e.attributes(m.Attributes)
	}
	if body := m.Bytes(); len(body) > 0 {
		e.value("body", body, func() string { return partMessage(m.ID) })
	}
	e.timeField("time", m.Time)
	e.textField("parked", parked)
	e.raw("}")
}

func (e *encoder) attributes(attributes map[string]string) {
	for i, k := range slices.Sorted(maps.Keys(attributes)) {
		e.opening(i, '{')
		e.text(k)
		e.raw(":")
		e.text(attributes[k])
	}
	e.raw("}")
}

// opening appends what stands before the entry at i: the bracket before the first, a comma before the others.
func (e *encoder) opening(i int, bracket byte) {
	if i > 0 {
		bracket = ','
	}
	e.buf = append(e.buf, bracket)
}

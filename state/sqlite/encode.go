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

// inlineLimit is the longest payload that is kept in a run's own rows. Longer ones have a row of their own, so that they
// are written once, and not again with each step. It is small enough for a row of five steps to fit in a page, and for
// JSON that is nested 500 deep to be read by SQLite's functions.
const inlineLimit = 1024

// payload is a part of a record that is too long for the run's own rows.
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

func (e *encoder) reset() { e.buf, e.large = e.buf[:0], e.large[:0] }

func (e *encoder) raw(s string) { e.buf = append(e.buf, s...) }

func (e *encoder) int(n int64) { e.buf = strconv.AppendInt(e.buf, n, 10) }

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

func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.raw("null")
	} else {
		e.int(t.UnixMilli())
	}
}

// field begins a member of an object, with the opening bracket if it is the first.
func (e *encoder) field(name string) {
	if len(e.buf) == 0 || e.buf[len(e.buf)-1] != '{' {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, '"', ':')
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
		e.int(n)
	}
}

func (e *encoder) timeField(name string, t time.Time) {
	if !t.IsZero() {
		e.field(name)
		e.int(t.UnixMilli())
	}
}

// header is what every write of a holder replaces.
type header struct {
	writeID, currentStep             string
	runs                             int
	leaseUntil, updatedAt, notBefore time.Time
	endsAs                           state.Status
	failure                          *state.Failure
}

// head appends [write_id, run, current_step, lease, updated_at], and behind it an object with what there seldom is.
func (e *encoder) head(h header) {
	e.raw("[")
	e.text(h.writeID)
	e.raw(",")
	e.int(int64(h.runs))
	e.raw(",")
	e.text(h.currentStep)
	e.raw(",")
	e.time(h.leaseUntil)
	e.raw(",")
	e.time(h.updatedAt)
	if h.endsAs != "" || !h.notBefore.IsZero() || h.failure != nil {
		e.raw(",{")
		e.textField("ends_as", string(h.endsAs))
		e.timeField("not_before", h.notBefore)
		e.failureField("failure", h.failure)
		e.raw("}")
	}
	e.raw("]")
}

// steps appends the log of all steps. Those that are pending and nothing else follow from the plan.
func (e *encoder) steps(plan []string, steps []state.StepRecord) {
	for i := range steps {
		s := &steps[i]
		if i >= len(plan) || s.Name != plan[i] || s.Status != state.StepPending || s.Attempts != 0 || !s.StartedAt.IsZero() || !s.EndedAt.IsZero() || rare(s) || s.Output != nil {
			e.step(i, s, plan)
		}
	}
}

// rare tells whether a step's entry has what most have not.
func rare(s *state.StepRecord) bool {
	return s.Unknown || s.Error != nil || s.UndoAttempts != 0 || s.UndoError != nil
}

// step appends an entry of the log of steps: index, status, attempts, start, what passed from there to the end, an object
// with what there seldom is or 0, and the output if there is one. An entry stands behind a comma.
func (e *encoder) step(i int, s *state.StepRecord, plan []string) {
	e.raw(",[")
	e.int(int64(i))
	e.raw(",")
	e.text(string(s.Status))
	e.raw(",")
	e.int(int64(s.Attempts))
	e.raw(",")
	e.time(s.StartedAt)
	e.raw(",")
	e.since(s.StartedAt, s.EndedAt)
	named := i >= len(plan) || s.Name != plan[i]
	inline := len(s.Output) <= inlineLimit && bare(s.Output)
	if named || rare(s) || s.Output != nil && !inline {
		e.raw(",{")
		if named {
			e.field("name")
			e.text(s.Name)
		}
		e.rest(s)
		if s.Output != nil && !inline {
			e.payload("output", s.Output, func() string { return partStep(i) })
		}
		e.raw("}")
	} else {
		e.raw(",0")
	}
	if inline {
		e.raw(",")
		e.buf = append(e.buf, s.Output...)
	}
	e.raw("]")
}

func (e *encoder) rest(s *state.StepRecord) {
	if s.Unknown {
		e.field("unknown")
		e.raw("true")
	}
	e.failureField("error", s.Error)
	e.intField("undo_attempts", int64(s.UndoAttempts))
	e.failureField("undo_error", s.UndoError)
}

// since appends the milliseconds from one time to another, from 1970 if from is zero.
func (e *encoder) since(from, to time.Time) {
	switch {
	case to.IsZero():
		e.raw("null")
	case from.IsZero():
		e.int(to.UnixMilli())
	default:
		e.int(to.UnixMilli() - from.UnixMilli())
	}
}

// payload appends a payload in the form in which it comes back byte by byte: as a text, or in base64, or, when it is
// long, as its size alone.
func (e *encoder) payload(name string, v []byte, part func() string) {
	switch {
	case len(v) > inlineLimit:
		e.large = append(e.large, payload{part(), v})
		e.field(name + "_size")
		e.int(int64(len(v)))
	case utf8.Valid(v):
		e.field(name + "_text")
		e.text(view(v))
	default:
		e.field(name + "_base64")
		e.raw(`"`)
		e.buf = base64.StdEncoding.AppendEncode(e.buf, v)
		e.raw(`"`)
	}
}

// bare tells whether v is JSON that begins and ends with its first and last byte, so that it can stand in other JSON and
// be found there again.
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
	e.raw("{")
	e.textField("step", f.Step)
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
	e.raw("{")
	e.textField("reason", c.Reason)
	e.textField("actor", c.Actor)
	e.timeField("at", c.At)
	e.raw("}")
}

func (e *encoder) audit(entries []state.AuditEntry) {
	for i, a := range entries {
		e.raw([...]string{"[{", ",{"}[min(i, 1)])
		e.textField("actor", a.Actor)
		e.textField("verb", a.Verb)
		e.textField("step", a.Step)
		e.textField("note", a.Note)
		e.timeField("at", a.At)
		e.raw("}")
	}
	e.raw("]")
}

// message appends an entry of the log of unsent messages, behind a comma.
func (e *encoder) message(m *outbox.Message, parked string) {
	e.raw(",{")
	e.textField("id", m.ID)
	e.textField("topic", m.Topic)
	e.textField("key", m.Key)
	e.textField("type", m.Type)
	e.textField("content_type", m.ContentType)
	if len(m.Attributes) > 0 {
		e.field("attributes")
		e.attributes(m.Attributes)
	}
	switch body := m.Bytes(); {
	case len(body) == 0:
	case len(body) <= inlineLimit && bare(body):
		e.field("body")
		e.buf = append(e.buf, body...)
	default:
		e.payload("body", body, func() string { return partMessage(m.ID) })
	}
	e.timeField("time", m.Time)
	e.textField("parked", parked)
	e.raw("}")
}

func (e *encoder) attributes(attributes map[string]string) {
	e.raw("{")
	for i, k := range slices.Sorted(maps.Keys(attributes)) {
		if i > 0 {
			e.raw(",")
		}
		e.text(k)
		e.raw(":")
		e.text(attributes[k])
	}
	e.raw("}")
}

package sqlite

import (
	"strings"
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// The columns of run_record by who sets them: a record's birth alone, or every write that rewrites a record.
var (
	bornColumns = []string{"idempotency_key", "operation", "version", "record_version", "retention", "payload_hash", "input", "created_at"}

	laterColumns = []string{
		"plan", "pivot", "step_count", "steps", "revision", "owner", "status", "cancel", "size", "write_id", "run", "current_step",
		"in_progress_expiration", "not_before", "expiration", "updated_at", "ends_as", "relay", "parked", "outbox_token", "outbox_until",
		"failure", "response_data", "outbox", "audit", "payloads",
	}

	insertRun = `INSERT INTO run_record (` + strings.Join(bornColumns, ", ") + ", " + strings.Join(laterColumns, ", ") + `) VALUES (?` +
		strings.Repeat(", ?", len(bornColumns)+len(laterColumns)-1) + `) ON CONFLICT (idempotency_key) DO NOTHING`

	updateRun = `UPDATE run_record SET ` + strings.Join(laterColumns, " = ?, ") + ` = ? WHERE id = ?`
)

// binder binds the parameters of a statement one after the other. What is not bound is NULL.
type binder struct {
	s *sqlite.Stmt
	n int
}

func (b *binder) text(v string) {
	b.n++
	b.s.BindText(b.n, v)
}

func (b *binder) int(v int64) {
	b.n++
	b.s.BindInt64(b.n, v)
}

func (b *binder) time(t time.Time) {
	b.n++
	if !t.IsZero() {
		b.s.BindInt64(b.n, t.UnixMilli())
	}
}

// second binds a time up to the next second.
func (b *binder) second(t time.Time) {
	b.n++
	if t.IsZero() {
		return
	}
	sec := t.Unix()
	if t.Nanosecond() > 0 {
		sec++
	}
	b.s.BindInt64(b.n, sec)
}

// bytes binds v as a text, NULL for nil. SQLite takes a text as it comes, whether it is UTF-8 or not.
func (b *binder) bytes(v []byte) {
	b.n++
	if v != nil {
		b.s.BindText(b.n, view(v))
	}
}

// data binds a payload as a text where it is one, so that people can read it.
func (b *binder) data(v []byte) {
	b.n++
	if utf8.Valid(v) {
		b.s.BindText(b.n, view(v))
	} else {
		b.s.BindBytes(b.n, v)
	}
}

// orNull binds NULL for an empty text.
func (b *binder) orNull(v string) {
	b.n++
	if v != "" {
		b.s.BindText(b.n, v)
	}
}

func (b *binder) flag(v bool) {
	n := int64(0)
	if v {
		n = 1
	}
	b.int(n)
}

// span is a part of an encoder's buffer.
type span struct {
	from, to int
	null     bool
}

// encoded is a record, or what a change adds to one, in the form in which it is stored. It is made on the caller's
// goroutine, so that the committer has nothing left to do but to bind it.
type encoded struct {
	encoder
	plan, steps, failure, cancel, outbox, audit span
	response, input                             []byte
}

// part marks what add appends, or NULL.
func (e *encoded) part(there bool, add func()) span {
	from := len(e.buf)
	if there {
		add()
	}
	return span{from, len(e.buf), !there}
}

// bind binds a part as a text.
func (e *encoded) bind(b *binder, s span) {
	if s.null {
		b.n++
		return
	}
	b.text(view(e.buf[s.from:s.to]))
}

// release lets go of the caller's payloads, and of a buffer that has grown unusually large.
func (e *encoded) release() {
	clear(e.large)
	e.response, e.input = nil, nil
	if cap(e.buf) > 64<<10 {
		e.buf = nil
	}
}

// record encodes all of rec that can change.
func (e *encoded) record(rec *state.Record) {
	e.reset()
	e.plan = e.part(true, func() { e.texts(rec.Plan) })
	e.steps = e.part(true, func() { e.encoder.steps(rec.Plan, rec.Steps) })
	e.failure = e.part(rec.Failure != nil, func() { e.encoder.failure(rec.Failure) })
	e.cancel = e.part(rec.Cancel != nil, func() { e.encoder.cancel(rec.Cancel) })
	e.outbox = e.part(true, func() {
		for i := range rec.Outbox.Messages {
			e.message(&rec.Outbox.Messages[i].Message, rec.Outbox.Messages[i].Parked)
		}
	})
	e.audit = e.part(len(rec.Audit) > 0, func() { e.encoder.audit(rec.Audit) })
	e.response = e.whole(partResponse, rec.Response)
}

// whole is a payload with a column of its own: itself, or nil when it has to go to a row of its own.
func (e *encoded) whole(part string, v []byte) []byte {
	if len(v) <= inlineLimit {
		return v
	}
	e.large = append(e.large, payload{part, v})
	return nil
}

// later binds laterColumns.
func (e *encoded) later(b *binder, rec *state.Record, size int, payloads bool) {
	e.bind(b, e.plan)
	b.text(rec.Pivot)
	b.int(int64(len(rec.Steps)))
	e.bind(b, e.steps)
	b.int(rec.Revision)
	b.text(rec.Owner)
	b.text(string(rec.Status))
	e.bind(b, e.cancel)
	b.int(int64(size))
	b.text(rec.WriteID)
	b.int(int64(rec.Runs))
	b.text(rec.CurrentStep)
	b.time(rec.LeaseUntil)
	b.time(rec.NotBefore)
	b.second(rec.ExpiresAt)
	b.time(rec.UpdatedAt)
	b.text(string(rec.EndsAs))
	b.orNull(relayOf(rec))
	b.orOne(parked(rec))
	b.text(rec.Outbox.Token)
	b.time(rec.Outbox.ClaimedUntil)
	e.bind(b, e.failure)
	b.bytes(e.response)
	e.bind(b, e.outbox)
	e.bind(b, e.audit)
	b.flag(payloads)
}

// orOne binds 1 or NULL: a column whose index holds the ones alone.
func (b *binder) orOne(v bool) {
	b.n++
	if v {
		b.s.BindInt64(b.n, 1)
	}
}

// relayOf is the column relay; empty for NULL.
func relayOf(r *state.Record) string {
	switch {
	case len(r.Outbox.Messages) > 0 && r.Outbox.Messages[0].Parked == "":
		return relaySend
	case len(r.Outbox.Messages) > 0:
		return relayHeld
	case r.Status.Ended() && r.ExpiresAt.IsZero() && r.Retention > 0:
		return relaySettle
	}
	return ""
}

func parked(r *state.Record) bool {
	for i := range r.Outbox.Messages {
		if r.Outbox.Messages[i].Parked != "" {
			return true
		}
	}
	return false
}

package sqlite

import (
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// binder binds the parameters of a statement one after the other, each of them: what was bound before stays otherwise.
type binder struct {
	s *sqlite.Stmt
	n int
}

func (b *binder) null() {
	b.n++
	b.s.BindNull(b.n)
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
	if t.IsZero() {
		b.null()
	} else {
		b.int(t.UnixMilli())
	}
}

// second binds a time up to the next second.
func (b *binder) second(t time.Time) {
	if t.IsZero() {
		b.null()
	} else {
		b.int(ceilSecond(t))
	}
}

func ceilSecond(t time.Time) int64 {
	sec := t.Unix()
	if t.Nanosecond() > 0 {
		sec++
	}
	return sec
}

// bytes binds v as a text, NULL for nil. SQLite takes a text as it comes, whether it is UTF-8 or not.
func (b *binder) bytes(v []byte) {
	if v == nil {
		b.null()
	} else {
		b.text(view(v))
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
	if v == "" {
		b.null()
	} else {
		b.text(v)
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
	header, log, plan, cancelled, sends, audits span
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
		b.null()
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
	e.header = e.part(true, func() {
		e.head(header{
			writeID: rec.WriteID, currentStep: rec.CurrentStep, runs: rec.Runs, leaseUntil: rec.LeaseUntil, updatedAt: rec.UpdatedAt,
			notBefore: rec.NotBefore, endsAs: rec.EndsAs, failure: rec.Failure,
		})
	})
	e.log = e.part(true, func() { e.steps(rec.Plan, rec.Steps) })
	e.plan = e.part(true, func() { e.texts(rec.Plan) })
	e.cancelled = e.part(rec.Cancel != nil, func() { e.cancel(rec.Cancel) })
	e.sends = e.part(true, func() {
		for i := range rec.Outbox.Messages {
			e.message(&rec.Outbox.Messages[i].Message, rec.Outbox.Messages[i].Parked)
		}
	})
	e.audits = e.part(len(rec.Audit) > 0, func() { e.audit(rec.Audit) })
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

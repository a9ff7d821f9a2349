package state

import (
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// recordJSON is a record as MarshalRecord writes it. A field that is added, or means something else, needs a new
// RecordVersion; testdata holds a record of every version.
type recordJSON struct {
	Key           string       `json:"idempotency_key"`
	RecordVersion int          `json:"record_version"`
	Operation     string       `json:"operation,omitempty"`
	Version       int          `json:"version,omitempty"`
	Retention     int64        `json:"retention,omitempty"`
	Plan          []string     `json:"plan,omitempty"`
	Pivot         string       `json:"pivot,omitempty"`
	Status        Status       `json:"status"`
	EndsAs        Status       `json:"ends_as,omitempty"`
	CurrentStep   string       `json:"current_step,omitempty"`
	Steps         []stepJSON   `json:"steps,omitempty"`
	PayloadHash   string       `json:"payload_hash,omitempty"`
	Input         *payloadJSON `json:"input,omitempty"`
	Response      *payloadJSON `json:"response_data,omitempty"`
	Failure       *failureJSON `json:"failure,omitempty"`
	Owner         string       `json:"owner,omitempty"`
	WriteID       string       `json:"write_id,omitempty"`
	Runs          int          `json:"run,omitempty"`
	Lease         milliJSON    `json:"in_progress_expiration,omitempty"`
	NotBefore     milliJSON    `json:"not_before,omitempty"`
	Cancel        *cancelJSON  `json:"cancel,omitempty"`
	Expires       int64        `json:"expiration,omitempty"`
	Revision      int64        `json:"revision"`
	CreatedAt     milliJSON    `json:"created_at,omitempty"`
	UpdatedAt     milliJSON    `json:"updated_at,omitempty"`
	Outbox        *outboxJSON  `json:"outbox,omitempty"`
	Audit         []auditJSON  `json:"audit,omitempty"`
}

type (
	payloadJSON string
	milliJSON   int64
)

type stepJSON struct {
	Name         string       `json:"name"`
	Status       StepStatus   `json:"status"`
	Attempts     int          `json:"attempts,omitempty"`
	Unknown      bool         `json:"unknown,omitempty"`
	Output       *payloadJSON `json:"output,omitempty"`
	Error        *failureJSON `json:"error,omitempty"`
	UndoAttempts int          `json:"undo_attempts,omitempty"`
	UndoError    *failureJSON `json:"undo_error,omitempty"`
	StartedAt    milliJSON    `json:"started_at,omitempty"`
	EndedAt      milliJSON    `json:"ended_at,omitempty"`
}

type failureJSON struct {
	Step      string    `json:"step,omitempty"`
	Code      string    `json:"code,omitempty"`
	Message   string    `json:"message,omitempty"`
	NotUndone []string  `json:"not_undone,omitempty"`
	At        milliJSON `json:"at,omitempty"`
}

type cancelJSON struct {
	Reason string    `json:"reason,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	At     milliJSON `json:"at,omitempty"`
}

type outboxJSON struct {
	Messages     []messageJSON `json:"messages,omitempty"`
	Token        string        `json:"token,omitempty"`
	ClaimedUntil milliJSON     `json:"claimed_until,omitempty"`
}

type messageJSON struct {
	ID          string            `json:"id"`
	Topic       string            `json:"topic"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type,omitempty"`
	Body        []byte            `json:"body,omitempty"` // base64
	ContentType string            `json:"content_type,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Time        milliJSON         `json:"time,omitempty"`
	Parked      string            `json:"parked,omitempty"`
}

type auditJSON struct {
	At    milliJSON `json:"at,omitempty"`
	Actor string    `json:"actor,omitempty"`
	Verb  string    `json:"verb,omitempty"`
	Step  string    `json:"step,omitempty"`
	Note  string    `json:"note,omitempty"`
}

func toJSON(r *Record) *recordJSON {
	j := &recordJSON{
		Key: r.Key, RecordVersion: RecordVersion, Operation: r.Operation, Version: r.Version,
		Retention: int64((r.Retention + time.Second - 1) / time.Second), Plan: r.Plan, Pivot: r.Pivot,
		Status: r.Status, EndsAs: r.EndsAs, CurrentStep: r.CurrentStep, PayloadHash: r.PayloadHash, Input: payloadToJSON(r.Input),
		Response: payloadToJSON(r.Response), Failure: r.Failure.toJSON(), Owner: r.Owner, WriteID: r.WriteID, Runs: r.Runs,
		Lease: milliToJSON(r.LeaseUntil), NotBefore: milliToJSON(r.NotBefore), Expires: secondToJSON(r.ExpiresAt),
		Revision: r.Revision, CreatedAt: milliToJSON(r.CreatedAt), UpdatedAt: milliToJSON(r.UpdatedAt), Outbox: r.Outbox.toJSON(),
	}
	for _, s := range r.Steps {
		j.Steps = append(j.Steps, stepJSON{
			Name: s.Name, Status: s.Status, Attempts: s.Attempts, Unknown: s.Unknown, Output: payloadToJSON(s.Output), Error: s.Error.toJSON(),
			UndoAttempts: s.UndoAttempts, UndoError: s.UndoError.toJSON(), StartedAt: milliToJSON(s.StartedAt), EndedAt: milliToJSON(s.EndedAt),
		})
	}
	if c := r.Cancel; c != nil {
		j.Cancel = &cancelJSON{Reason: c.Reason, Actor: c.Actor, At: milliToJSON(c.At)}
	}
	for _, a := range r.Audit {
		j.Audit = append(j.Audit, auditJSON{At: milliToJSON(a.At), Actor: a.Actor, Verb: a.Verb, Step: a.Step, Note: a.Note})
	}
	return j
}

func (j *recordJSON) record() *Record {
	r := &Record{
		Key: j.Key, Operation: j.Operation, Version: j.Version, Retention: time.Duration(j.Retention) * time.Second, Plan: j.Plan, Pivot: j.Pivot,
		Status: j.Status, EndsAs: j.EndsAs, CurrentStep: j.CurrentStep, PayloadHash: j.PayloadHash, Input: j.Input.payload(),
		Response: j.Response.payload(), Failure: j.Failure.failure(), Owner: j.Owner, WriteID: j.WriteID, Runs: j.Runs,
		LeaseUntil: j.Lease.time(), NotBefore: j.NotBefore.time(), ExpiresAt: milliJSON(j.Expires * 1000).time(),
		Revision: j.Revision, CreatedAt: j.CreatedAt.time(), UpdatedAt: j.UpdatedAt.time(), Outbox: j.Outbox.outbox(),
	}
	for _, s := range j.Steps {
		r.Steps = append(r.Steps, StepRecord{
			Name: s.Name, Status: s.Status, Attempts: s.Attempts, Unknown: s.Unknown, Output: s.Output.payload(), Error: s.Error.failure(),
			UndoAttempts: s.UndoAttempts, UndoError: s.UndoError.failure(), StartedAt: s.StartedAt.time(), EndedAt: s.EndedAt.time(),
		})
	}
	if c := j.Cancel; c != nil {
		r.Cancel = &CancelRequest{Reason: c.Reason, Actor: c.Actor, At: c.At.time()}
	}
	for _, a := range j.Audit {
		r.Audit = append(r.Audit, AuditEntry{At: a.At.time(), Actor: a.Actor, Verb: a.Verb, Step: a.Step, Note: a.Note})
	}
	return r
}

func (o Outbox) toJSON() *outboxJSON {
	if o.Token == "" && len(o.Messages) == 0 && o.ClaimedUntil.IsZero() {
		return nil
	}
	j := &outboxJSON{Token: o.Token, ClaimedUntil: milliToJSON(o.ClaimedUntil)}
	for _, m := range o.Messages {
		j.Messages = append(j.Messages, messageJSON{
			ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Body: m.Bytes(), ContentType: m.ContentType, Attributes: m.Attributes,
			Time: milliToJSON(m.Time), Parked: m.Parked,
		})
	}
	return j
}

func (j *outboxJSON) outbox() Outbox {
	if j == nil {
		return Outbox{}
	}
	o := Outbox{Token: j.Token, ClaimedUntil: j.ClaimedUntil.time()}
	for _, m := range j.Messages {
		o.Messages = append(o.Messages, OutboxMessage{
			Message: outbox.Message{
				ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Body: m.Body, ContentType: m.ContentType, Attributes: m.Attributes,
				Time: m.Time.time(),
			},
			Parked: m.Parked,
		})
	}
	return o
}

func (f *Failure) toJSON() *failureJSON {
	if f == nil {
		return nil
	}
	return &failureJSON{Step: f.Step, Code: f.Code, Message: f.Message, NotUndone: f.NotUndone, At: milliToJSON(f.At)}
}

func (j *failureJSON) failure() *Failure {
	if j == nil {
		return nil
	}
	return &Failure{Step: j.Step, Code: j.Code, Message: j.Message, NotUndone: j.NotUndone, At: j.At.time()}
}

func payloadToJSON(raw []byte) *payloadJSON {
	if raw == nil {
		return nil
	}
	p := payloadJSON(raw)
	return &p
}

func (p *payloadJSON) payload() []byte {
	if p == nil {
		return nil
	}
	return []byte(*p)
}

// milliToJSON is t in milliseconds since 1970, and 0 for the zero time. What can't be told from that, the first moment of
// 1970 and all before, becomes negative, which is refused.
func milliToJSON(t time.Time) milliJSON {
	if t.IsZero() {
		return 0
	}
	if t.Year() > 9999 {
		return maxMilli + 1
	}
	if ms := t.UnixMilli(); ms > 0 {
		return milliJSON(ms)
	}
	return -1
}

func secondToJSON(t time.Time) int64 {
	ms := milliToJSON(CeilSecond(t))
	if ms < 0 {
		return -1
	}
	return int64(ms) / 1000
}

func (m milliJSON) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

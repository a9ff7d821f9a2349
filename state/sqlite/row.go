package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// columns are those that scan reads, in its order, and rows is what they are columns of.
const (
	columns = `r.id, r.idempotency_key, r.owner, r.revision, r.status, r.cancel, r.expiration, r.head, r.steps, r.response_data,
  a.operation, a.version, a.record_version, a.retention, a.payload_hash, a.created_at, a.plan, a.step_count, a.pivot, a.payloads, a.input, a.audit,
  o.id, o.token, o.claimed_until, o.messages`
	rows = ` FROM run_record r JOIN run_about a USING (id) LEFT JOIN run_outbox o USING (id)`

	selectByKey   = `SELECT ` + columns + rows + ` WHERE r.idempotency_key = ?1`
	selectPayload = `SELECT part, data FROM run_payload WHERE id = ?1`
)

// row is a record with what the store knows of it besides.
type row struct {
	id        int64
	rec       *state.Record
	payloads  parts
	hasOutbox bool

	recordVersion, stepCount                   int
	hasPayloads                                bool
	head, plan, steps, cancel, messages, audit []byte
}

// scan reads the row that s stands on, without taking its texts apart: see decode.
func scan(s *sqlite.Stmt) *row {
	return &row{
		id: s.ColumnInt64(0), recordVersion: s.ColumnInt(12), stepCount: s.ColumnInt(17), hasPayloads: s.ColumnBool(19), hasOutbox: !s.ColumnIsNull(22),
		cancel: columnBytes(s, 5), head: columnBytes(s, 7), steps: columnBytes(s, 8), plan: columnBytes(s, 16), audit: columnBytes(s, 21),
		messages: columnBytes(s, 25),
		rec: &state.Record{
			Key: s.ColumnText(1), Owner: s.ColumnText(2), Revision: s.ColumnInt64(3), Status: state.Status(s.ColumnText(4)), ExpiresAt: columnSecond(s, 6),
			Response: columnBytes(s, 9), Operation: s.ColumnText(10), Version: s.ColumnInt(11), Retention: time.Duration(s.ColumnInt64(13)) * time.Second,
			PayloadHash: s.ColumnText(14), CreatedAt: columnTime(s, 15), Pivot: s.ColumnText(18), Input: columnBytes(s, 20),
			Outbox: state.Outbox{Token: s.ColumnText(23), ClaimedUntil: columnTime(s, 24)},
		},
	}
}

// decode takes the texts apart, once loadPayloads has been called. Errors are of class [state.ErrNewerRecord] or
// [state.ErrCorrupt].
func (r *row) decode() error {
	if r.recordVersion > state.RecordVersion {
		return fmt.Errorf("run %s: %w (version %d; this one reads up to %d)", r.rec.Key, state.ErrNewerRecord, r.recordVersion, state.RecordVersion)
	}
	if part, err := r.decodeTexts(); err != nil {
		return fmt.Errorf("run %s: %w: its %s: %w", r.rec.Key, state.ErrCorrupt, part, err)
	}
	return nil
}

func (r *row) decodeTexts() (part string, err error) {
	rec := r.rec
	if err = decodeHead(r.head, rec); err != nil {
		return "head", err
	}
	if rec.Plan, err = decodePlan(r.plan); err != nil {
		return "plan", err
	}
	if rec.Steps, err = decodeSteps(r.steps, rec.Plan, r.stepCount, r.payloads); err != nil {
		return "steps", err
	}
	if rec.Cancel, err = decodeCancel(r.cancel); err != nil {
		return "cancel", err
	}
	if rec.Outbox.Messages, err = decodeMessages(r.messages, r.payloads); err != nil {
		return "messages", err
	}
	if rec.Audit, err = decodeAudit(r.audit); err != nil {
		return "audit", err
	}
	r.whole(partInput, &rec.Input)
	r.whole(partResponse, &rec.Response)
	return "", nil
}

// whole puts a payload that was too long for its column into its place.
func (r *row) whole(part string, value *json.RawMessage) {
	if data, ok := r.payloads[part]; ok && *value == nil {
		*value = data
	}
}

// find reads the row with that key, nil if there is none, whether it has expired or not.
func find(c conn, key string) (r *row, err error) {
	s, err := c.Prepare(selectByKey)
	if err != nil {
		return nil, err
	}
	s.BindText(1, key)
	found, err := s.Step()
	if found {
		r = scan(s)
	}
	return r, done(s, err)
}

// loadPayloads reads the payloads that have rows of their own, in the transaction in which r was read.
func (r *row) loadPayloads(c conn) error {
	if !r.hasPayloads {
		return nil
	}
	s, err := c.Prepare(selectPayload)
	if err != nil {
		return err
	}
	s.BindInt64(1, r.id)
	r.payloads = parts{}
	for {
		found, err := s.Step()
		if !found || err != nil {
			return done(s, err)
		}
		r.payloads[s.ColumnText(0)] = columnBytes(s, 1)
	}
}

func loadAll(c conn, rows []*row) error {
	for _, r := range rows {
		if err := r.loadPayloads(c); err != nil {
			return err
		}
	}
	return nil
}

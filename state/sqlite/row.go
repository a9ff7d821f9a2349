package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// columns are those of run_record in the order in which scan reads them.
const columns = `id, idempotency_key, operation, version, record_version, retention, plan, pivot, status, ends_as, current_step,
  step_count, steps, payload_hash, input, response_data, failure, owner, write_id, run, in_progress_expiration, not_before, cancel,
  expiration, revision, created_at, updated_at, outbox, outbox_token, outbox_until, audit, payloads`

const (
	selectByKey   = `SELECT ` + columns + ` FROM run_record WHERE idempotency_key = ?1`
	selectPayload = `SELECT part, data FROM run_payload WHERE run = ?1`
)

// row is a record with what the store knows of it besides.
type row struct {
	id       int64
	rec      *state.Record
	payloads parts

	recordVersion, stepCount                    int
	hasPayloads                                 bool
	plan, steps, failure, cancel, outbox, audit []byte
}

// scan reads the row that s stands on, without taking its texts apart: see decode.
func scan(s *sqlite.Stmt) *row {
	return &row{
		id: s.ColumnInt64(0), recordVersion: s.ColumnInt(4), plan: columnBytes(s, 6), stepCount: s.ColumnInt(11), steps: columnBytes(s, 12),
		failure: columnBytes(s, 16), cancel: columnBytes(s, 22), outbox: columnBytes(s, 27), audit: columnBytes(s, 30), hasPayloads: s.ColumnBool(31),
		rec: &state.Record{
			Key: s.ColumnText(1), Operation: s.ColumnText(2), Version: s.ColumnInt(3), Retention: time.Duration(s.ColumnInt64(5)) * time.Second,
			Pivot: s.ColumnText(7), Status: state.Status(s.ColumnText(8)), EndsAs: state.Status(s.ColumnText(9)), CurrentStep: s.ColumnText(10),
			PayloadHash: s.ColumnText(13), Input: columnBytes(s, 14), Response: columnBytes(s, 15), Owner: s.ColumnText(17), WriteID: s.ColumnText(18),
			Runs: s.ColumnInt(19), LeaseUntil: columnTime(s, 20), NotBefore: columnTime(s, 21), ExpiresAt: columnSecond(s, 23),
			Revision: s.ColumnInt64(24), CreatedAt: columnTime(s, 25), UpdatedAt: columnTime(s, 26),
			Outbox: state.Outbox{Token: s.ColumnText(28), ClaimedUntil: columnTime(s, 29)},
		},
	}
}

// decode takes the texts apart, r.payloads being there. Errors are of class [state.ErrNewerRecord] or [state.ErrCorrupt].
func (r *row) decode() error {
	if r.recordVersion > state.RecordVersion {
		return fmt.Errorf("run %s: %w (version %d; this one reads up to %d)", r.rec.Key, state.ErrNewerRecord, r.recordVersion, state.RecordVersion)
	}
	if err := r.decodeTexts(); err != nil {
		return fmt.Errorf("run %s: %w: %w", r.rec.Key, state.ErrCorrupt, err)
	}
	return nil
}

func (r *row) decodeTexts() (err error) {
	rec := r.rec
	if err := json.Unmarshal(r.plan, &rec.Plan); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if rec.Steps, err = decodeSteps(r.steps, rec.Plan, r.stepCount, r.payloads); err != nil {
		return fmt.Errorf("steps: %w", err)
	}
	if rec.Failure, err = decodeFailure(r.failure); err != nil {
		return fmt.Errorf("failure: %w", err)
	}
	if rec.Cancel, err = decodeCancel(r.cancel); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if rec.Outbox.Messages, err = decodeMessages(r.outbox, r.payloads); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if rec.Audit, err = decodeAudit(r.audit); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for part, value := range map[string]*json.RawMessage{partInput: &rec.Input, partResponse: &rec.Response} {
		if data, ok := r.payloads[part]; ok && *value == nil {
			*value = data
		}
	}
	return nil
}

// find reads the row with that key, nil if there is none, whether it has expired or not. It is of use after loadPayloads
// and decode.
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
		data := columnBytes(s, 1)
		if data == nil {
			data = []byte{}
		}
		r.payloads[s.ColumnText(0)] = data
	}
}

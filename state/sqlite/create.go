package sqlite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	insertRecord = `INSERT INTO run_record (idempotency_key, owner, revision, status, cancel, expiration, head, steps, response_data)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (idempotency_key) DO NOTHING`
	insertAbout = `INSERT INTO run_about (id, operation, version, record_version, retention, payload_hash, created_at, plan, step_count,
  pivot, payloads, input, audit) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`
)

// createTask is a Create on its way through the committer.
type createTask struct {
	job
	enc      encoded
	rec      *state.Record
	id       int64
	existing *state.Record
}

var createTasks = sync.Pool{New: func() any {
	t := &createTask{}
	t.task, t.done = t, make(chan error, 1)
	return t
}}

// Create stores rec; see [state.Store].
func (s *Store) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	size := rec.Size()
	if s.maxRecord > 0 && size > s.maxRecord {
		return nil, s.failed("Create", "", tooLarge(rec.Key, size, s.maxRecord))
	}
	t := createTasks.Get().(*createTask)
	t.rec, t.size = rec, size
	t.enc.record(rec)
	t.enc.input = t.enc.whole(partInput, rec.Input)
	left, err := s.writer.do(ctx, &t.job)
	if left {
		return nil, s.failed("Create", rec.Key, err)
	}
	existing, id := t.existing, t.id
	t.rec, t.existing = nil, nil
	t.enc.release()
	createTasks.Put(t)
	switch {
	case err != nil:
		return nil, s.failed("Create", rec.Key, err)
	case existing == nil:
		s.memory.keep(rec.Key, known{
			id: id, owner: rec.Owner, revision: rec.Revision, size: size, steps: len(rec.Steps), plan: slices.Clone(rec.Plan), retained: rec.Retention > 0,
		})
	}
	return existing, nil
}

func (t *createTask) apply(tx *tx) (answer, err error) {
	t.existing = nil
	made, err := t.insert(tx)
	if made || err != nil {
		return nil, err
	}
	r, err := find(tx.c, t.rec.Key)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return fmt.Errorf("%w: it is there in part", state.ErrCorrupt), nil
	}
	now := tx.now
	if t.rec.CreatedAt.After(now) {
		now = t.rec.CreatedAt
	}
	if r.rec.Expired(now) {
		if err := tx.remove(r.id); err != nil {
			return nil, err
		}
		_, err := t.insert(tx)
		return nil, err
	}
	if err := r.loadPayloads(tx.c); err != nil {
		return nil, err
	}
	if answer := r.decode(); answer != nil {
		return answer, nil
	}
	t.existing = r.rec
	return nil, nil
}

// insert tells whether the key was free.
func (t *createTask) insert(tx *tx) (made bool, err error) {
	rec, e := t.rec, &t.enc
	b := binder{s: tx.insertRecord}
	b.text(rec.Key)
	b.text(rec.Owner)
	b.int(rec.Revision)
	b.text(string(rec.Status))
	e.bind(&b, e.cancelled)
	b.second(rec.ExpiresAt)
	e.bind(&b, e.header)
	e.bind(&b, e.log)
	b.bytes(e.response)
	if err := run(b.s); err != nil || tx.c.Changes() == 0 {
		return false, err
	}
	t.id = tx.c.LastInsertRowID()
	b = binder{s: tx.insertAbout}
	b.int(t.id)
	b.text(rec.Operation)
	b.int(int64(rec.Version))
	b.int(state.RecordVersion)
	b.int(int64((rec.Retention + time.Second - 1) / time.Second))
	b.text(rec.PayloadHash)
	b.time(rec.CreatedAt)
	e.bind(&b, e.plan)
	b.int(int64(len(rec.Steps)))
	b.text(rec.Pivot)
	b.flag(len(e.large) > 0)
	b.bytes(e.input)
	e.bind(&b, e.audits)
	if err := run(b.s); err != nil {
		return false, err
	}
	if err := tx.put(t.id, e.large); err != nil {
		return false, err
	}
	return true, tx.outbox(t.id, rec, e, false)
}

func tooLarge(key string, size, limit int) error {
	return fmt.Errorf("run %s: %w: %d bytes, at most %d are allowed (WithMaxRecord sets the limit)", key, state.ErrTooLarge, size, limit)
}

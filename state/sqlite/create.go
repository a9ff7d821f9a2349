package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// createTask is a Create on its way through the committer.
type createTask struct {
	job
	enc      encoded
	rec      *state.Record
	size     int
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
	if s.over(size) {
		return nil, s.tooLarge(rec.Key, size)
	}
	t := createTasks.Get().(*createTask)
	t.rec, t.size, t.job.size = rec, size, size
	t.state.Store(jobWaits)
	t.enc.record(rec)
	t.enc.input = t.enc.whole(partInput, rec.Input)
	left, err := s.queue.do(ctx, &t.job)
	if left {
		return nil, s.failed("Create", rec.Key, err)
	}
	existing := t.existing
	t.rec, t.existing, t.answer = nil, nil, nil
	t.enc.release()
	createTasks.Put(t)
	if err != nil {
		return nil, s.failed("Create", rec.Key, err)
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
		return nil, errors.New("the key is taken and not there")
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
	rec := t.rec
	b := binder{s: tx.insert}
	b.text(rec.Key)
	b.text(rec.Operation)
	b.int(int64(rec.Version))
	b.int(state.RecordVersion)
	b.int(int64((rec.Retention + time.Second - 1) / time.Second))
	b.text(rec.PayloadHash)
	b.bytes(t.enc.input)
	b.time(rec.CreatedAt)
	t.enc.later(&b, rec, t.size, len(t.enc.large) > 0)
	if err := run(tx.insert); err != nil {
		return false, err
	}
	if tx.c.Changes() == 0 {
		return false, nil
	}
	return true, tx.put(tx.c.LastInsertRowID(), t.enc.large)
}

func (s *Store) over(size int) bool { return s.maxRecord > 0 && size > s.maxRecord }

func (s *Store) tooLarge(key string, size int) error {
	return tooLarge(key, size, s.maxRecord)
}

func tooLarge(key string, size, limit int) error {
	return fmt.Errorf("run %s: %w: %d bytes, at most %d are allowed (WithMaxRecord sets the limit)", key, state.ErrTooLarge, size, limit)
}

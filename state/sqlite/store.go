package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Store keeps records in a SQLite file. Its methods may be called concurrently; several processes may have the same file
// open. Use [Open].
type Store struct {
	path      string
	clock     clock.Clock
	maxRecord int
	writer    *writer
	readers   *readers
	slack     conn
	memory    *memory
	// unreadable is told of records that can't be read; nil: they are errors.
	unreadable func(key string, err error)

	closing sync.Once
	closed  error
}

var _ state.Store = (*Store)(nil)
var _ outbox.Source = (*Store)(nil)

// Capabilities: everything.
func (s *Store) Capabilities() state.Capabilities {
	return state.Capabilities{MaxRecord: s.maxRecord, ListEnded: true, Durable: true}
}

// Close waits for the writes and reads in hand and closes the file. Every later call of another method returns
// [ErrClosed]; a later Close returns what the first returned.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.writer.drain()
		// Readers first: the last to close a file tidies up behind it, which only one that writes can.
		s.closed = errors.Join(s.readers.close(), s.writer.close(), s.slack.Close())
		if s.closed != nil {
			s.closed = explain(s.path, "Close", s.closed)
		}
	})
	return s.closed
}

// write has the committer run the task.
func (s *Store) write(ctx context.Context, op, key string, t taskFunc) error {
	_, err := s.writer.do(ctx, &job{task: t, done: make(chan error, 1)})
	return s.failed(op, key, err)
}

// failed says where an error came from. Those that callers take apart go through as they are.
func (s *Store) failed(op, key string, err error) error {
	var conflict *state.ConflictError
	if err == nil || errors.As(err, &conflict) {
		return err
	}
	if key == "" {
		return fmt.Errorf("sqlite: %s: %w", op, err)
	}
	return fmt.Errorf("sqlite: %s %s: %w", op, key, err)
}

// RequestCancel stores the request; see [state.Store].
func (s *Store) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	return s.write(ctx, "RequestCancel", key, func(tx *tx) (answer, err error) {
		r, answer, err := tx.load(key)
		if answer != nil || err != nil {
			return answer, err
		}
		if r == nil {
			return state.ErrNotFound, nil
		}
		store, answer := r.rec.CheckCancel()
		if answer != nil {
			return fmt.Errorf("it is %s: %w", r.rec.Status, answer), nil
		}
		if !store {
			return nil, nil
		}
		tx.enc.reset()
		tx.enc.encoder.cancel(&req)
		return nil, tx.exec(`UPDATE run_record SET cancel = ?2 WHERE id = ?1`, func(b *binder) {
			b.int(r.id)
			b.bytes(tx.enc.buf)
		})
	})
}

// Delete removes the record; see [state.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	s.memory.forget(key)
	return s.write(ctx, "Delete", key, func(tx *tx) (answer, err error) {
		id, err := tx.id(key)
		if err != nil || id == 0 {
			return nil, err
		}
		return nil, tx.remove(id)
	})
}

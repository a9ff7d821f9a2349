package laws

import (
	"context"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Store is one process's way to a store whose writes to one run are entered in a book. All ways to that run must lead
// through Stores of the same book.
type Store struct {
	state.Store
	book *Book
	key  string

	mu   sync.Mutex
	view *state.Record
}

var _ state.Store = (*Store)(nil)

// Watch enters what happens to the run of this encoded key.
func Watch(inner state.Store, book *Book, key string) *Store {
	return &Store{Store: inner, book: book, key: key}
}

// View is the record as the last accepted write of this process has left it; nil before that.
func (s *Store) View() *state.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

func (s *Store) see(rec *state.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec != nil {
		s.view = rec.Clone()
	}
}

// Create is [state.Store]'s.
func (s *Store) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	if rec.Key != s.key {
		return s.Store.Create(ctx, rec)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	existing, err := s.Store.Create(ctx, rec)
	if err == nil && existing == nil {
		if now := s.now(ctx); now != nil {
			s.book.created(now)
			s.see(now)
		}
	}
	return existing, err
}

// Commit is [state.Store]'s.
func (s *Store) Commit(ctx context.Context, ch *state.Change) error {
	if ch.Key != s.key {
		return s.Store.Commit(ctx, ch)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	err := s.Store.Commit(ctx, ch)
	if err != nil {
		return err
	}
	now := s.now(ctx)
	if now != nil {
		s.book.committed(ch, now)
		s.see(now)
	}
	return nil
}

// now is the record as it is stored.
func (s *Store) now(ctx context.Context) *state.Record {
	rec, err := s.Store.Get(context.WithoutCancel(ctx), s.key)
	if err != nil {
		s.book.breaks("the record can't be read again: %v", err)
		return nil
	}
	return rec
}

// beside makes a write that is none of a holder's.
func (s *Store) beside(ctx context.Context, send func() error) error {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	err := send()
	if s.book.rec != nil {
		if now := s.now(ctx); now != nil {
			s.book.rec = now
		}
	}
	return err
}

// RequestCancel is [state.Store]'s.
func (s *Store) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	return s.beside(ctx, func() error { return s.Store.RequestCancel(ctx, key, req) })
}

// Sent is [outbox.Source]'s.
func (s *Store) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	return s.beside(ctx, func() error { return s.Store.Sent(ctx, b, ids) })
}

// Package memory is a store in memory, for tests and for runs that need not survive the process. It keeps every promise
// of the store contract but durability.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// DefaultMaxRecord is how many bytes a record may take when [WithMaxRecord] says nothing: 16 MiB.
const DefaultMaxRecord = 16 << 20

// Store keeps records in memory. Its methods may be called concurrently. Use [New].
type Store struct {
	clock     clock.Clock
	maxRecord int

	mu      sync.Mutex
	records map[string]*entry
	order   []*entry // by seq, oldest first; removed ones stay, emptied, until the next sweep
	relay   []*entry // those that Claim has to look at, by the time from which it had to
	lastSeq uint64

	sweepAt, relaySweepAt int // lengths of order and relay at which the next sweep is due
}

// entry is a stored record. rec is nil once it has been removed.
type entry struct {
	rec    *state.Record
	seq    uint64
	size   int  // rec.Size(), or more
	queued bool // is in Store.relay
}

var _ state.Store = (*Store)(nil)

// New makes an empty store.
func New(opts ...Option) *Store {
	s := &Store{clock: clock.System(), maxRecord: DefaultMaxRecord, records: map[string]*entry{}, sweepAt: minSweep, relaySweepAt: minSweep}
	for _, o := range opts {
		if o != nil {
			o.apply(s)
		}
	}
	return s
}

// Capabilities: everything but durability.
func (s *Store) Capabilities() state.Capabilities {
	return state.Capabilities{MaxRecord: s.maxRecord, ListEnded: true}
}

// Create stores a copy of rec; see [state.Store].
func (s *Store) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size := rec.Size()
	if s.over(size) {
		return nil, s.tooLarge(rec.Key, size)
	}
	own := rec.Clone()
	own.Round()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.records[rec.Key]; e != nil {
		now := s.clock.Now()
		if own.CreatedAt.After(now) {
			now = own.CreatedAt
		}
		if !e.rec.Expired(now) {
			return e.rec.Clone(), nil
		}
		s.remove(e)
	}
	s.add(own, size)
	return nil, nil
}

// Commit makes the change; see [state.Store].
func (s *Store) Commit(ctx context.Context, ch *state.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.live(ch.Key)
	if e == nil {
		return &state.ConflictError{Key: ch.Key}
	}
	grown := e.size + ch.Growth()
	if s.over(grown) {
		return s.commitExact(e, ch)
	}
	if err := ch.Apply(e.rec); err != nil {
		return err
	}
	e.size = grown
	s.enqueue(e)
	return nil
}

// commitExact makes a change that may lead over the limit, on a copy. e.size only ever grows by what a change brings,
// whatever it replaces, so it is often too high.
func (s *Store) commitExact(e *entry, ch *state.Change) error {
	next := e.rec.Clone()
	if err := ch.Apply(next); err != nil {
		return err
	}
	size := next.Size()
	if s.over(size) && ch.Payload(e.rec) > 0 {
		return s.tooLarge(ch.Key, size)
	}
	e.rec, e.size = next, size
	s.enqueue(e)
	return nil
}

// RequestCancel stores the request; see [state.Store].
func (s *Store) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.live(key)
	if e == nil {
		return fmt.Errorf("memory: run %s: %w", key, state.ErrNotFound)
	}
	store, err := e.rec.CheckCancel()
	if err != nil {
		return fmt.Errorf("memory: run %s: it is %s: %w", key, e.rec.Status, err)
	}
	if store {
		req.At = state.Milli(req.At)
		e.rec.Cancel = &req
	}
	return nil
}

// Get returns a copy of the record; see [state.Store].
func (s *Store) Get(ctx context.Context, key string) (*state.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.live(key)
	if e == nil {
		return nil, fmt.Errorf("memory: run %s: %w", key, state.ErrNotFound)
	}
	return e.rec.Clone(), nil
}

// Delete removes the record; see [state.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.records[key]; e != nil {
		s.remove(e)
	}
	return nil
}

func (s *Store) over(size int) bool { return s.maxRecord > 0 && size > s.maxRecord }

func (s *Store) tooLarge(key string, size int) error {
	return fmt.Errorf("memory: run %s: %w: %d bytes, at most %d are allowed (WithMaxRecord sets the limit)",
		key, state.ErrTooLarge, size, s.maxRecord)
}

// live is the entry of the key, unless it has expired.
func (s *Store) live(key string) *entry {
	e := s.records[key]
	if e == nil || !e.rec.ExpiresAt.IsZero() && e.rec.Expired(s.clock.Now()) {
		return nil
	}
	return e
}

func (s *Store) add(rec *state.Record, size int) {
	if len(s.order) >= s.sweepAt {
		s.sweep(s.clock.Now())
	}
	s.lastSeq++
	e := &entry{rec: rec, seq: s.lastSeq, size: size}
	s.records[rec.Key] = e
	s.order = append(s.order, e)
	s.enqueue(e)
}

func (s *Store) remove(e *entry) {
	delete(s.records, e.rec.Key)
	e.rec = nil
}

// minSweep is the least length at which Store.order and Store.relay are swept.
const minSweep = 1024

// sweep forgets what is expired or removed, so that memory holds what is live, and at most as much again.
func (s *Store) sweep(now time.Time) {
	kept := s.order[:0]
	for _, e := range s.order {
		switch {
		case e.rec == nil:
		case e.rec.Expired(now):
			s.remove(e)
		default:
			kept = append(kept, e)
		}
	}
	clear(s.order[len(kept):])
	s.order = kept
	s.sweepAt = max(minSweep, 2*len(kept))
}

package sagatest

import (
	"context"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// brought is what a call has brought beside its error. A call that lands late leaves it after the caller has gone.
type brought[T any] struct {
	mu sync.Mutex
	v  T
}

func (b *brought[T]) put(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.v = v
}

// get is what was brought, or nothing beside an error.
func (b *brought[T]) get(err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.v, nil
}

// Capabilities are those of the store that is wrapped.
func (s *FaultyStore) Capabilities() state.Capabilities { return s.inner.Capabilities() }

// Create is [state.Store]'s, by the script.
func (s *FaultyStore) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	var out brought[*state.Record]
	own := rec.Clone() // a call that is late must not see what becomes of the caller's
	return out.get(s.through(ctx, StoreCall{Method: "Create", Key: rec.Key, Record: own}, func(ctx context.Context) error {
		existing, err := s.inner.Create(ctx, own)
		out.put(existing)
		return err
	}))
}

// Commit is [state.Store]'s, by the script.
func (s *FaultyStore) Commit(ctx context.Context, ch *state.Change) error {
	own := *ch // its slices are made anew for each change
	return s.through(ctx, StoreCall{Method: "Commit", Key: ch.Key, Change: &own}, func(ctx context.Context) error {
		return s.inner.Commit(ctx, &own)
	})
}

// RequestCancel is [state.Store]'s, by the script.
func (s *FaultyStore) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	return s.through(ctx, StoreCall{Method: "RequestCancel", Key: key}, func(ctx context.Context) error {
		return s.inner.RequestCancel(ctx, key, req)
	})
}

// Get is [state.Store]'s, by the script.
func (s *FaultyStore) Get(ctx context.Context, key string) (*state.Record, error) {
	var out brought[*state.Record]
	return out.get(s.through(ctx, StoreCall{Method: "Get", Key: key}, func(ctx context.Context) error {
		rec, err := s.inner.Get(ctx, key)
		out.put(rec)
		return err
	}))
}

// List is [state.Store]'s, by the script.
func (s *FaultyStore) List(ctx context.Context, q state.Query) (state.Page, error) {
	var out brought[state.Page]
	return out.get(s.through(ctx, StoreCall{Method: "List"}, func(ctx context.Context) error {
		page, err := s.inner.List(ctx, q)
		out.put(page)
		return err
	}))
}

// Delete is [state.Store]'s, by the script.
func (s *FaultyStore) Delete(ctx context.Context, key string) error {
	return s.through(ctx, StoreCall{Method: "Delete", Key: key}, func(ctx context.Context) error {
		return s.inner.Delete(ctx, key)
	})
}

// Claim is [outbox.Source]'s, by the script.
func (s *FaultyStore) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	var out brought[[]outbox.Batch]
	return out.get(s.through(ctx, StoreCall{Method: "Claim"}, func(ctx context.Context) error {
		batches, err := s.inner.Claim(ctx, limit, lease)
		out.put(batches)
		return err
	}))
}

// Sent is [outbox.Source]'s, by the script.
func (s *FaultyStore) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	return s.through(ctx, StoreCall{Method: "Sent", Key: b.RunKey}, func(ctx context.Context) error {
		return s.inner.Sent(ctx, b, ids)
	})
}

// Park is [outbox.Source]'s, by the script.
func (s *FaultyStore) Park(ctx context.Context, b outbox.Batch, id, reason string) error {
	return s.through(ctx, StoreCall{Method: "Park", Key: b.RunKey}, func(ctx context.Context) error {
		return s.inner.Park(ctx, b, id, reason)
	})
}

// Parked is [outbox.Source]'s, by the script.
func (s *FaultyStore) Parked(ctx context.Context, cursor string) (msgs []outbox.Message, next string, err error) {
	type page struct {
		msgs []outbox.Message
		next string
	}
	var out brought[page]
	p, err := out.get(s.through(ctx, StoreCall{Method: "Parked"}, func(ctx context.Context) error {
		msgs, next, err := s.inner.Parked(ctx, cursor)
		out.put(page{msgs, next})
		return err
	}))
	return p.msgs, p.next, err
}

// Unpark is [outbox.Source]'s, by the script.
func (s *FaultyStore) Unpark(ctx context.Context, id string, resend bool, note string) error {
	return s.through(ctx, StoreCall{Method: "Unpark"}, func(ctx context.Context) error {
		return s.inner.Unpark(ctx, id, resend, note)
	})
}

package saga_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tsuzuki-go/tsuzuki/state"
)

var errDead = errors.New("the process is dead")

// mortal is a store as a process sees it that dies: from then on nothing gets through any more, and what is at hand is
// either made or not, but never answered. Deaths are counted in writes; tests may also kill it at a moment of their own.
type mortal struct {
	state.Store
	writes atomic.Int64
	dead   atomic.Bool

	// dieAt is the write, from 1, at which the process dies; 0: never.
	dieAt int64
	// landed: that write is made all the same.
	landed bool
}

func (m *mortal) kill() { m.dead.Store(true) }

// write tells whether the write is made, and whether it is answered.
func (m *mortal) write() (made, answered bool) {
	if m.dead.Load() {
		return false, false
	}
	if m.writes.Add(1) == m.dieAt {
		m.kill()
		return m.landed, false
	}
	return true, true
}

func (m *mortal) Create(ctx context.Context, rec *state.Record) (existing *state.Record, err error) {
	made, answered := m.write()
	if made {
		existing, err = m.Store.Create(ctx, rec)
	}
	if !answered {
		return nil, errDead
	}
	return existing, err
}

func (m *mortal) Commit(ctx context.Context, ch *state.Change) (err error) {
	made, answered := m.write()
	if made {
		err = m.Store.Commit(ctx, ch)
	}
	if !answered {
		return errDead
	}
	return err
}

func (m *mortal) RequestCancel(ctx context.Context, key string, req state.CancelRequest) (err error) {
	made, answered := m.write()
	if made {
		err = m.Store.RequestCancel(ctx, key, req)
	}
	if !answered {
		return errDead
	}
	return err
}

func (m *mortal) Get(ctx context.Context, key string) (*state.Record, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.Get(ctx, key)
}

// hookedStore calls a hook around commits.
type hookedStore struct {
	state.Store
	beforeCommit, afterCommit func(ch *state.Change)
}

func (s *hookedStore) Commit(ctx context.Context, ch *state.Change) error {
	if s.beforeCommit != nil {
		s.beforeCommit(ch)
	}
	err := s.Store.Commit(ctx, ch)
	if err == nil && s.afterCommit != nil {
		s.afterCommit(ch)
	}
	return err
}

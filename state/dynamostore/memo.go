package dynamostore

import (
	"slices"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// hint is what the store has seen of a run that somebody here holds. A Change does not say when its run began, how its
// steps are called and how long it is kept, and a read to find out would cost as much as the write.
//
// Those three never change while an owner holds a run (the plan only grows), and an owner is random, so that they may be
// relied on for a Change of that owner. ended and messages are guesses, which the writes that go by them check.
type hint struct {
	owner     string
	base      base
	plan      []string
	retention time.Duration

	ended    bool
	messages bool
}

func hintOf(r *state.Record) hint {
	return hint{owner: r.Owner, base: baseOf(state.Milli(r.CreatedAt)), plan: slices.Clone(r.Plan),
		retention: time.Duration(retentionSeconds(r.Retention)) * time.Second,
		ended:     r.Status.Ended(), messages: len(r.Outbox.Messages) > 0}
}

// after is the hint once the change is made.
func (h hint) after(ch *state.Change) hint {
	h.owner, h.ended = ch.Owner, ch.Status.Ended()
	if ch.Plan != nil {
		h.plan = slices.Clone(ch.Plan)
	}
	h.messages = h.messages || len(ch.Messages) > 0
	return h
}

// memo holds the hints of the runs that were touched last, between memoSize and twice as many.
type memo struct {
	mu         sync.Mutex
	young, old map[string]hint
}

const memoSize = 4096

func (m *memo) put(key string, h hint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young == nil || len(m.young) >= memoSize {
		m.young, m.old = make(map[string]hint), m.young
	}
	m.young[key] = h
}

func (m *memo) get(key string) (h hint, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h, ok = m.young[key]; !ok {
		h, ok = m.old[key]
	}
	return h, ok
}

// of is the hint that may be relied on for a change of this owner.
func (m *memo) of(key, owner string) (h hint, ok bool) {
	h, ok = m.get(key)
	return h, ok && owner != "" && h.owner == owner
}

func (m *memo) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, key)
	delete(m.old, key)
}

package sagatest

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// ErrNoAnswer is what a caller of a [FaultyStore] gets in place of an answer that never came. It leaves open whether the
// write was made, as a time-out does.
var ErrNoAnswer = errors.New("sagatest: no answer from the store")

// ErrDead is what a caller gets for everything after [FaultyStore.Die].
var ErrDead = errors.New("sagatest: the process is dead")

// StoreCall is one call of a store's method, as matches and faults see it. Record and Change may be looked at, and must
// not be changed.
type StoreCall struct {
	// Method is the name of the method of [state.Store], such as "Commit".
	Method string
	// Nth counts the calls of this method on this FaultyStore, from 1.
	Nth int
	// Key is the encoded key of the run; empty for List, Claim, Parked and Unpark.
	Key string
	// Record is what Create is given.
	Record *state.Record
	// Change is what Commit is given.
	Change *state.Change
}

// Heartbeat tells whether the call is a commit that renews the lease and records nothing.
func (c StoreCall) Heartbeat() bool {
	ch := c.Change
	return ch != nil && ch.Owner != "" && ch.Owner == ch.IfOwner &&
		(ch.Status == state.StatusInProgress || ch.Status == state.StatusCompensating) &&
		len(ch.Steps)+len(ch.Messages)+len(ch.Audit)+len(ch.Plan) == 0 &&
		(ch.Failure == nil || ch.Status == state.StatusCompensating) // on the way back each write carries the cause
}

// Match picks calls of a store.
type Match func(StoreCall) bool

// Method matches the calls of one method, by its name.
func Method(name string) Match { return func(c StoreCall) bool { return c.Method == name } }

// Nth matches the nth call of one method, from 1.
func Nth(method string, n int) Match {
	return func(c StoreCall) bool { return c.Method == method && c.Nth == n }
}

// Writes matches every write that a run makes: Create and Commit.
func Writes(c StoreCall) bool { return c.Record != nil || c.Change != nil }

// Heartbeats matches the commits that only renew a lease.
func Heartbeats(c StoreCall) bool { return c.Heartbeat() }

// Records matches the commits that give the named step this status.
func Records(step string, status state.StepStatus) Match {
	return func(c StoreCall) bool {
		if c.Change == nil {
			return false
		}
		for _, s := range c.Change.Steps {
			if s.Name == step && s.Status == status {
				return true
			}
		}
		return false
	}
}

// Becomes matches the commits after which the run has this status.
func Becomes(status state.Status) Match {
	return func(c StoreCall) bool { return c.Change != nil && c.Change.Status == status }
}

// TakesUp matches the commits by which another holder takes a run up.
func TakesUp(c StoreCall) bool {
	return c.Change != nil && c.Change.Owner != "" && c.Change.Owner != c.Change.IfOwner
}

// Fault is what becomes of one call: send makes it and returns the store's own answer, and what the fault returns is the
// answer that the caller gets. A fault may call send later, or not at all; an answer of nil without send is turned into
// [ErrNoAnswer]. It may be called concurrently with other faults.
type Fault func(ctx context.Context, c StoreCall, send func(context.Context) error) error

// Fail does not make the call, and answers with err.
func Fail(err error) Fault {
	return func(context.Context, StoreCall, func(context.Context) error) error { return err }
}

// LoseAnswer makes the call, and the answer never comes.
func LoseAnswer() Fault {
	return func(ctx context.Context, _ StoreCall, send func(context.Context) error) error {
		_ = send(ctx)
		return ErrNoAnswer
	}
}

// Before calls f and then makes the call.
func Before(f func()) Fault {
	return func(ctx context.Context, _ StoreCall, send func(context.Context) error) error {
		f()
		return send(ctx)
	}
}

// After makes the call and then calls f, before the caller gets the answer.
func After(f func()) Fault {
	return func(ctx context.Context, _ StoreCall, send func(context.Context) error) error {
		err := send(ctx)
		f()
		return err
	}
}

// Hang does not make the call, and answers when its context ends.
func Hang() Fault {
	return func(ctx context.Context, _ StoreCall, _ func(context.Context) error) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// Late is a call that is under way in the network for longer than its caller waits: the caller gets [ErrNoAnswer], and
// the call is made when the test calls Land. The zero value is ready; use its Fault once.
type Late struct {
	mu   sync.Mutex
	send func(context.Context) error
}

// Fault keeps the call for Land.
func (l *Late) Fault(_ context.Context, _ StoreCall, send func(context.Context) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.send = send
	return ErrNoAnswer
}

// Sent tells whether a call is under way.
func (l *Late) Sent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.send != nil
}

// Land makes the call at last and returns the store's answer, which the caller never sees. Without a call under way it
// returns an error.
func (l *Late) Land(ctx context.Context) error {
	l.mu.Lock()
	send := l.send
	l.send = nil
	l.mu.Unlock()
	if send == nil {
		return errors.New("sagatest: no call is under way")
	}
	return send(ctx)
}

// FaultyStore is a store as seen over a network that a test has scripted, call by call or by a seed: calls fail, hang, or
// arrive late, and answers are lost. Without a script it is the store that it wraps. Several on one store are several processes' views of it. Its
// methods may be called concurrently.
type FaultyStore struct {
	inner state.Store

	mu    sync.Mutex
	rules []*rule
	count map[string]int
	calls []StoreCall
	dead  bool
}

type rule struct {
	match  Match
	fault  Fault
	always bool
	drawn  func(StoreCall) Fault // of a seeded rule; nil: this call is spared
}

// of is the fault that the rule has for the call; nil: none.
func (r *rule) of(c StoreCall) Fault {
	switch {
	case !r.match(c):
		return nil
	case r.drawn != nil:
		return r.drawn(c)
	}
	return r.fault
}

var _ state.Store = (*FaultyStore)(nil)

// NewFaultyStore wraps a store.
func NewFaultyStore(inner state.Store) *FaultyStore {
	return &FaultyStore{inner: inner, count: map[string]int{}}
}

// On lets the next call that matches meet the fault; calls after it are not touched by this rule. The oldest rule that
// matches a call is the one that counts.
func (s *FaultyStore) On(match Match, fault Fault) *FaultyStore {
	return s.add(&rule{match: match, fault: fault})
}

// Always lets every call that matches meet the fault, until Clear.
func (s *FaultyStore) Always(match Match, fault Fault) *FaultyStore {
	return s.add(&rule{match: match, fault: fault, always: true})
}

// Seeded lets one in oneIn of the calls that match meet one of the faults, until Clear. Without faults half of them are not
// made and the others' answers are lost, and the caller gets [ErrNoAnswer] for both. Which calls, and which faults, is
// decided by the seed, the method and how often it has been called: the same seed gives the nth call of a method the same
// fault, whatever else is called meanwhile. An oneIn below 1 counts as 1.
func (s *FaultyStore) Seeded(seed uint64, oneIn int, match Match, faults ...Fault) *FaultyStore {
	if len(faults) == 0 {
		faults = []Fault{Fail(ErrNoAnswer), LoseAnswer()}
	}
	faults = slices.Clone(faults)
	return s.add(&rule{match: match, always: true, drawn: func(c StoreCall) Fault {
		name := fnv.New64a()
		_, _ = name.Write([]byte(c.Method)) // which never fails
		rng := rand.New(rand.NewPCG(seed, name.Sum64()+uint64(c.Nth)))
		if rng.IntN(max(oneIn, 1)) != 0 {
			return nil
		}
		return faults[rng.IntN(len(faults))]
	}})
}

func (s *FaultyStore) add(r *rule) *FaultyStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return s
}

// Clear forgets all rules.
func (s *FaultyStore) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Die is the death of the process behind this view of the store: nothing gets through from now on, the answers of calls
// under way included, and [ErrDead] is all that its callers get. Calls that are Late land all the same.
func (s *FaultyStore) Die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

// Calls are the calls so far that match, in the order of their beginning. Those after Die are not among them.
func (s *FaultyStore) Calls(match Match) (found []StoreCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if match(c) {
			found = append(found, c)
		}
	}
	return found
}

func (s *FaultyStore) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// begin counts the call and finds its rule.
func (s *FaultyStore) begin(c *StoreCall) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, false
	}
	s.count[c.Method]++
	c.Nth = s.count[c.Method]
	s.calls = append(s.calls, *c)
	for i, r := range s.rules {
		fault := r.of(*c)
		if fault == nil {
			continue
		}
		if !r.always {
			s.rules = append(s.rules[:i:i], s.rules[i+1:]...)
		}
		return fault, true
	}
	return nil, true
}

// through makes one call by the script. What send has brought counts only when the error is nil, or the store's own.
func (s *FaultyStore) through(ctx context.Context, c StoreCall, send func(context.Context) error) error {
	fault, alive := s.begin(&c)
	if !alive {
		return ErrDead
	}
	var err error
	if fault == nil {
		err = send(ctx)
	} else {
		var mu sync.Mutex
		sent := false
		err = fault(ctx, c, func(ctx context.Context) error {
			mu.Lock()
			sent = true
			mu.Unlock()
			return send(ctx)
		})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && !sent {
			return ErrNoAnswer
		}
	}
	if s.isDead() {
		return ErrDead
	}
	return err
}

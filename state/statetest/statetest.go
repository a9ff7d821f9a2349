// Package statetest is the suite that defines a correct [state.Store]: whoever writes one runs it with [Run].
//
//	func TestStore(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) state.Store { return mystore.New(t.TempDir()) })
//	}
//
// It needs nothing but the store's own methods, and makes a few thousand calls in all.
package statetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Option changes how [Run] tests. It is sealed: this package's options are the only ones.
type Option interface {
	apply(*suite)
}

type option func(*suite)

func (o option) apply(s *suite) { o(s) }

// Seed makes the random sequences others than those of the default seed, which is the same in every run.
func Seed(seed uint64) Option { return option(func(s *suite) { s.seed = seed }) }

// Sequences is how many random sequences are tried; the default is 12, of some 30 calls each.
func Sequences(n int) Option { return option(func(s *suite) { s.sequences = n }) }

// Reopen lets the suite check that what is committed survives: reopen is to close the store, if it has to be closed, and
// return another one on the same data. Without it a store that says it is durable is taken at its word.
func Reopen(reopen func(t *testing.T, s state.Store) state.Store) Option {
	return option(func(s *suite) { s.reopen = reopen })
}

type suite struct {
	open      func(t *testing.T) state.Store
	reopen    func(t *testing.T, s state.Store) state.Store
	seed      uint64
	sequences int
}

// Run tests the store. open is called once for each part of the suite, some thirty times, from several goroutines, and
// must return an empty store that shares no records with the others; it closes the store with t.Cleanup. The store has to
// go by the machine's clock. Parts run in parallel; all have ended when Run returns.
func Run(t *testing.T, open func(t *testing.T) state.Store, opts ...Option) {
	t.Helper()
	s := &suite{open: open, seed: 1, sequences: 12}
	for _, o := range opts {
		o.apply(s)
	}
	parts := []struct {
		name string
		test func(*subject)
	}{
		{"fields", testFields}, {"times", testTimes}, {"create", testCreate}, {"fence", testFence}, {"transitions", testTransitions},
		{"random", testRandom}, {"races", testRaces}, {"lost answers", testLostAnswers},
		{"cancel", testCancel}, {"cancel races", testCancelRaces}, {"expiry", testExpiry}, {"delete", testDelete},
		{"list", testList}, {"paging", testPaging}, {"sizes", testSizes}, {"keys", testKeys}, {"payloads", testPayloads},
		{"isolation", testIsolation}, {"contexts", testContexts},
		{"outbox order", testOutboxOrder}, {"outbox fence", testOutboxFence}, {"outbox limit", testOutboxLimit}, {"outbox sent", testOutboxSent},
		{"outbox park", testOutboxPark}, {"outbox parked pages", testParkedPages}, {"outbox of a live run", testOutboxOfALiveRun},
		{"outbox relays", testRelays}, {"outbox claim by commit", testClaimByCommit}, {"outbox settling", testSettling},
	}
	t.Run("store", func(t *testing.T) {
		for _, p := range parts {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.test(&subject{T: t, suite: s, store: open(t)})
			})
		}
	})
}

// subject is the store under test, in one part of the suite.
type subject struct {
	*testing.T
	suite *suite
	store state.Store
	ids   atomic.Int64
}

// part runs a part of a part, on the same store.
func (s *subject) part(name string, test func(*subject)) {
	s.T.Helper()
	s.T.Run(name, func(t *testing.T) { test(&subject{T: t, suite: s.suite, store: s.store}) })
}

// keyOf is a key that no other test uses.
func (s *subject) keyOf(id string) string {
	key, err := state.Key{Tenant: "statetest", Operation: "operation", ID: s.Name() + " " + id}.Encode()
	require.NoError(s, err)
	return key
}

// fresh names something that was not there before.
func (s *subject) fresh(what string) string { return fmt.Sprintf("%s-%d", what, s.ids.Add(1)) }

func now() time.Time { return state.Milli(time.Now()) }

// record is a run of three steps that has just been started.
func (s *subject) record(id string) *state.Record {
	at := now()
	return &state.Record{
		Key: s.keyOf(id), Operation: "operation", Version: 1, Plan: []string{"first", "second", "third"}, Retention: time.Hour,
		Status: state.StatusInProgress, CurrentStep: "first",
		Steps: []state.StepRecord{
			{Name: "first", Status: state.StepPending}, {Name: "second", Status: state.StepPending}, {Name: "third", Status: state.StepPending},
		},
		PayloadHash: "1:abc", Input: []byte(`{"id":"` + id + `"}`), Owner: s.fresh("owner"), WriteID: s.fresh("write"), Runs: 1,
		LeaseUntil: at.Add(time.Minute), Revision: 1, CreatedAt: at, UpdatedAt: at,
	}
}

// follow is a change of r that changes nothing but the write ID, for the test to add to.
func (s *subject) follow(r *state.Record) *state.Change {
	return &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: s.fresh("write"), Owner: r.Owner, Runs: r.Runs, Status: r.Status,
		EndsAs: r.EndsAs, CurrentStep: r.CurrentStep, LeaseUntil: r.LeaseUntil, NotBefore: r.NotBefore, ExpiresAt: r.ExpiresAt,
		UpdatedAt: now(), Failure: r.Failure,
	}
}

// done is a change that records the step at index as done.
func (s *subject) done(r *state.Record, index int) *state.Change {
	ch := s.follow(r)
	step := r.Steps[index]
	step.Status, step.Attempts, step.Output, step.StartedAt, step.EndedAt = state.StepDone, step.Attempts+1, []byte(`{"ok":true}`), r.CreatedAt, now()
	ch.Steps = []state.StepChange{{Index: index, StepRecord: step}}
	return ch
}

// end is a change that ends the run, literally: its expiry is for the test to set.
func (s *subject) end(r *state.Record) *state.Change {
	ch := s.follow(r)
	ch.Owner, ch.LeaseUntil, ch.CurrentStep, ch.Status = "", time.Time{}, "", state.StatusCompleted
	return ch
}

// create stores rec, whose key must be free, and returns the test's own copy of it.
func (s *subject) create(rec *state.Record) *state.Record {
	s.Helper()
	existing, err := s.store.Create(s.Context(), rec)
	require.NoError(s, err, "Create")
	require.Nil(s, existing, "Create: the key should be free")
	return rec.Clone()
}

// commit makes the change to the store and to r.
func (s *subject) commit(r *state.Record, ch *state.Change) {
	s.Helper()
	require.NoError(s, s.store.Commit(s.Context(), ch), "Commit")
	require.NoError(s, ch.Apply(r), "the suite made an illegal change")
}

func (s *subject) get(key string) *state.Record {
	s.Helper()
	rec, err := s.store.Get(s.Context(), key)
	require.NoError(s, err, "Get")
	require.NotNil(s, rec, "Get")
	return rec
}

// stored checks that the store holds exactly want.
func (s *subject) stored(want *state.Record, why string) {
	s.Helper()
	s.equal(want, s.get(want.Key), why)
}

func (s *subject) equal(want, got *state.Record, why string) {
	s.Helper()
	require.NotNil(s, got, why)
	if d := Differences(want, got); len(d) > 0 {
		require.Fail(s, why+": the record is not what it should be", "%s", lines(d))
	}
}

// gone checks that the store holds no such record.
func (s *subject) gone(key, why string) {
	s.Helper()
	rec, err := s.store.Get(s.Context(), key)
	require.ErrorIs(s, err, state.ErrNotFound, why)
	require.Nil(s, rec, why)
}

// conflict checks that err is a refused write, that it carries want as the record as it is, and that this is still stored.
func (s *subject) conflict(err error, want *state.Record, why string) {
	s.Helper()
	require.ErrorIs(s, err, state.ErrConflict, why)
	var refused *state.ConflictError
	require.ErrorAs(s, err, &refused, why)
	s.equal(want, refused.Current, why+": ConflictError.Current")
	s.stored(want, why)
}

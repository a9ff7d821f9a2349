package dynamostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// to is a change that leads the run to another status and says nothing else.
func to(r *state.Record, status state.Status) *state.Change {
	at := state.Milli(time.Now())
	ch := &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: fmt.Sprintf("write-%d", r.Revision+1), Owner: r.Owner, Runs: r.Runs,
		Status: status, EndsAs: r.EndsAs, LeaseUntil: at.Add(time.Minute), UpdatedAt: at,
	}
	if status.Ended() {
		ch.ExpiresAt = r.Expiry(at)
	}
	return ch
}

func commit(t *testing.T, s *dynamostore.Store, r *state.Record, ch *state.Change) {
	t.Helper()
	require.NoError(t, s.Commit(t.Context(), ch))
	require.NoError(t, ch.Apply(r))
}

// After each write, a run has an entry exactly if it is open. So it is for the store that drives it, and for one that has
// never seen it.
func TestIndexEntriesComeAndGoWithTheRun(t *testing.T) {
	const (
		inProgress, interrupted, compensating = state.StatusInProgress, state.StatusInterrupted, state.StatusCompensating
		completed, failed, blocked, reversed  = state.StatusCompleted, state.StatusFailed, state.StatusBlocked, state.StatusReversed
	)
	ways := [][]state.Status{
		{inProgress, completed, compensating, compensating, reversed},
		{interrupted, inProgress, compensating, blocked, compensating, failed},
		{blocked, interrupted, compensating, failed},
		{interrupted, compensating, reversed},
	}
	for _, retention := range []time.Duration{0, time.Hour} {
		for i, way := range ways {
			t.Run(fmt.Sprintf("retention %v, way %d", retention, i), func(t *testing.T) {
				p := dynamotest.Start(t, i%2 == 0)
				s := newStore(t, p)
				for _, strange := range []bool{false, true} {
					r := newCostlyRun(1, 100, 60).Record
					r.Retention = retention
					(&costlyRun{Record: r}).create(t, s)
					for _, status := range way {
						writer := s
						if strange {
							writer = another(t, p, s)
						}
						commit(t, writer, r, to(r, status))
						want := 1
						if status.Ended() {
							want = 0
						}
						require.Equal(t, want, entries(t, s), "%s", status)
						(&costlyRun{Record: r}).stored(t, s)
					}
					require.NoError(t, s.Delete(t.Context(), r.Key))
				}
			})
		}
	}
}

func TestARecordThatIsCreatedEndedHasNoEntry(t *testing.T) {
	s := newStore(t, dynamotest.Start(t, true))
	r := newCostlyRun(1, 100, 60)
	r.Status = state.StatusCompleted
	r.create(t, s)
	assert.Zero(t, entries(t, s))
}

// ended is a run that has emitted two messages and has ended without a claim.
func ended(t *testing.T, s *dynamostore.Store, retention time.Duration) *state.Record {
	t.Helper()
	r := newCostlyRun(2, 100, 60).Record
	r.Retention = retention
	(&costlyRun{Record: r}).create(t, s)
	ch := to(r, state.StatusInProgress)
	ch.Messages = twoMessages(r)
	commit(t, s, r, ch)
	commit(t, s, r, to(r, state.StatusCompleted))
	return r
}

func TestARunWithUnsentMessagesStaysInTheIndexUntilTheyAreSent(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Hour} {
		for _, strange := range []bool{false, true} {
			t.Run(fmt.Sprintf("retention %v, strange %v", retention, strange), func(t *testing.T) {
				p := dynamotest.Start(t, true)
				s := newStore(t, p)
				relay := s
				if strange {
					relay = another(t, p, s)
				}
				r := ended(t, s, retention)
				require.Equal(t, 1, entries(t, s))
				batches, err := relay.Claim(t.Context(), 10, time.Minute)
				require.NoError(t, err)
				require.Len(t, batches, 1)
				assert.Equal(t, r.Outbox.Sendable(), batches[0].Messages)
				require.NoError(t, relay.Sent(t.Context(), batches[0], all(batches[0])))
				assert.Zero(t, entries(t, s))
				got, err := s.Get(t.Context(), r.Key)
				require.NoError(t, err)
				assert.Equal(t, retention > 0, !got.ExpiresAt.IsZero())
				assert.Empty(t, got.Outbox.Messages)
			})
		}
	}
}

// The holder ends the run without an expiry, since it does not know that a relay has sent its messages meanwhile.
func TestClaimClosesARunWhoseHolderThoughtThatItHadMessages(t *testing.T) {
	for _, strange := range []bool{false, true} {
		t.Run(fmt.Sprintf("strange %v", strange), func(t *testing.T) {
			p := dynamotest.Start(t, true)
			s := newStore(t, p)
			relay, holder := another(t, p, s), s
			r := emitting(t, s)
			batches, err := relay.Claim(t.Context(), 10, time.Minute)
			require.NoError(t, err)
			require.Len(t, batches, 1)
			require.NoError(t, relay.Sent(t.Context(), batches[0], all(batches[0])))
			if strange {
				holder = another(t, p, s)
			}
			commit(t, holder, r, to(r, state.StatusCompleted)) // r still has the messages
			require.Equal(t, 1, entries(t, s), "someone has to set the expiry")

			batches, err = relay.Claim(t.Context(), 10, time.Minute)
			require.NoError(t, err)
			assert.Empty(t, batches)
			assert.Zero(t, entries(t, s))
			got, err := s.Get(t.Context(), r.Key)
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now().Add(r.Retention), got.ExpiresAt, 5*time.Second)
		})
	}
}

func TestListingClosesWhatItFindsEnded(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := emitting(t, s)
	relay := another(t, p, s)
	batches, err := relay.Claim(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.NoError(t, relay.Sent(t.Context(), batches[0], all(batches[0])))
	commit(t, s, r, to(r, state.StatusCompleted))
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	assert.Empty(t, page.Records, "ended runs are not listed")
	assert.Zero(t, entries(t, s))
}

func TestAnExpiryWithUnsentMessagesIsRefused(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	for _, strange := range []bool{false, true} {
		r := emitting(t, s)
		writer := s
		if strange {
			writer = another(t, p, s)
		}
		ch := to(r, state.StatusCompleted)
		ch.ExpiresAt = state.CeilSecond(time.Now().Add(time.Hour))
		require.ErrorIs(t, writer.Commit(t.Context(), ch), state.ErrTransition)
		(&costlyRun{Record: r}).stored(t, s)
		require.NoError(t, s.Delete(t.Context(), r.Key))
	}
}

// Operators drop the last parked message of an ended run.
func TestDroppingTheLastMessageClosesTheRun(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := parked(t, s)
	require.Equal(t, 1, entries(t, s))
	require.NoError(t, s.Unpark(t.Context(), r.Outbox.Messages[0].ID, false, "nobody wants it"))
	assert.Zero(t, entries(t, s))
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	assert.False(t, got.ExpiresAt.IsZero())
	assert.Equal(t, []string{"run"}, parts(t, p, s, r.Key), "the body is gone too")
}

// What the index shows may be old: entries of runs that have ended or are gone, and none of those that have just begun.
func TestAnIndexThatLags(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		keys := map[string]*state.Record{}
		for _, name := range []string{"ends", "is deleted", "stays", "sends"} {
			r := newCostlyRun(2, 100, 60)
			r.Key, r.Retention = "t#o#"+name, time.Hour
			r.create(t, s)
			keys[name] = r.Record
		}
		ch := to(keys["sends"], state.StatusInProgress)
		ch.Messages = twoMessages(keys["sends"])
		commit(t, s, keys["sends"], ch)
		list := func() (found []string) {
			page, err := s.List(t.Context(), state.Query{})
			require.NoError(t, err)
			require.Empty(t, page.Next)
			for _, r := range page.Records {
				assert.Equal(t, keys[r.Key[len("t#o#"):]], r, "the record itself is as it is now")
				found = append(found, r.Key[len("t#o#"):])
			}
			return found
		}
		assert.ElementsMatch(t, []string{"ends", "is deleted", "stays", "sends"}, list())
		p.FreezeIndexes(true)
		commit(t, s, keys["ends"], to(keys["ends"], state.StatusCompleted))
		require.NoError(t, s.Delete(t.Context(), keys["is deleted"].Key))
		commit(t, s, keys["stays"], to(keys["stays"], state.StatusInterrupted))
		begun := newCostlyRun(1, 100, 60)
		begun.Key = "t#o#begins"
		begun.create(t, s)
		keys["begins"] = begun.Record
		assert.ElementsMatch(t, []string{"stays", "sends"}, list())
		p.FreezeIndexes(false)
		assert.ElementsMatch(t, []string{"stays", "sends", "begins"}, list())

		batches, err := s.Claim(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, batches, 1)
		p.FreezeIndexes(true)
		require.NoError(t, s.Sent(t.Context(), batches[0], all(batches[0])))
		again, err := s.Claim(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		assert.Empty(t, again)
	})
}

func TestListsAndRelaysNeedTheIndex(t *testing.T) {
	s := newStore(t, dynamotest.Start(t, true), dynamostore.WithoutIndex())
	r := emittingUnclaimed(t, s)
	_, err := s.List(t.Context(), state.Query{})
	require.ErrorIs(t, err, state.ErrUnsupported)
	_, err = s.Claim(t.Context(), 1, time.Minute)
	require.ErrorIs(t, err, state.ErrUnsupported)
	_, _, err = s.Parked(t.Context(), "")
	require.ErrorIs(t, err, state.ErrUnsupported)
	(&costlyRun{Record: r}).stored(t, s)

	// The inline relay works without it.
	ch := to(r, state.StatusCompleted)
	ch.Claim = &state.Claim{Token: "token", Until: state.Milli(time.Now().Add(time.Minute))}
	commit(t, s, r, ch)
	b := batchOf(r)
	require.NoError(t, s.Park(t.Context(), b, b.Messages[0].ID, "why"))
	require.NoError(t, s.Unpark(t.Context(), b.Messages[0].ID, true, "why not"))
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	assert.Len(t, got.Outbox.Sendable(), 2)
}

func emittingUnclaimed(t *testing.T, s *dynamostore.Store) *state.Record {
	t.Helper()
	return emitting(t, s)
}

func TestEndedRunsCantBeListed(t *testing.T) {
	s := newStore(t, dynamotest.Start(t, true))
	assert.False(t, s.Capabilities().ListEnded)
	for _, status := range []state.Status{state.StatusCompleted, state.StatusFailed, state.StatusReversed} {
		_, err := s.List(t.Context(), state.Query{Statuses: []state.Status{state.StatusBlocked, status}})
		require.ErrorIs(t, err, state.ErrUnsupported)
	}
}

// As many messages are named as there are, but one of them is gone already: the other one must not be closed over.
func TestSentOfAMessageThatIsGoneLeavesTheOthers(t *testing.T) {
	s := newStore(t, dynamotest.Start(t, true))
	r := claimedAndEnded(t, s)
	b := batchOf(r)
	last := b.Messages[1]
	b.Messages[1] = message(r.Key+"/gone/0", "gone", r.CreatedAt)
	require.NoError(t, s.Sent(t.Context(), b, all(b)))
	require.NoError(t, r.Outbox.Sent(b, all(b)))
	(&costlyRun{Record: r}).stored(t, s)
	assert.Equal(t, []outbox.Message{last}, r.Outbox.Sendable())
	assert.Equal(t, 1, entries(t, s))
}

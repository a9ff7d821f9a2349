package dynamostore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// reverse is the change with which an operator has a completed run undone.
func reverse(r *state.Record, at time.Time) *state.Change {
	return &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: "reverse", Owner: "op", Runs: r.Runs + 1,
		Status: state.StatusCompensating, EndsAs: state.StatusReversed, LeaseUntil: at.Add(time.Minute), UpdatedAt: at,
	}
}

func TestExpiredRecordsAreGoneBeforeTheyAreDeleted(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s, clk := fakeStore(t, p)
		r := newCostlyRun(2, 1000, 60)
		r.complete(t, s)
		clk.Set(r.ExpiresAt.Add(-time.Millisecond))
		r.stored(t, s)
		clk.Set(r.ExpiresAt)

		_, err := s.Get(t.Context(), r.Key)
		require.ErrorIs(t, err, state.ErrNotFound)
		require.ErrorIs(t, s.RequestCancel(t.Context(), r.Key, state.CancelRequest{}), state.ErrNotFound)
		var refused *state.ConflictError
		require.ErrorAs(t, s.Commit(t.Context(), reverse(r.Record, clk.Now())), &refused)
		assert.Nil(t, refused.Current)
		assert.Len(t, items(t, p, s, r.Key), 2, "it is still there")

		again := newCostlyRun(2, 1000, 60)
		again.WriteID = "another"
		again.create(t, s)
		again.stored(t, s)
	})
}

// A record that is expired by the new one's own clock is gone, though the store's clock is late.
func TestCreateGoesByTheLaterClock(t *testing.T) {
	for name, input := range map[string]int{"small": 100, "large": 1000} {
		t.Run(name, func(t *testing.T) {
			p := dynamotest.Start(t, true)
			s, clk := fakeStore(t, p)
			r := newCostlyRun(1, input, 60)
			r.complete(t, s)
			clk.Set(r.ExpiresAt.Add(-time.Hour))

			early := newCostlyRun(1, input, 60)
			early.CreatedAt = r.ExpiresAt.Add(-time.Millisecond)
			existing, err := s.Create(t.Context(), early.Record)
			require.NoError(t, err)
			require.Equal(t, r.Record, existing)

			late := newCostlyRun(1, input, 60)
			late.CreatedAt = r.ExpiresAt
			late.create(t, s)
		})
	}
}

func TestAWriteToADeletedRunMakesNoHalfRecord(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		r := &costlyRun{emitting(t, s), string(jsonOf(60))}
		b := batchOf(r.Record)
		b.Token = "token"
		require.NoError(t, s.Delete(t.Context(), r.Key))
		var refused *state.ConflictError
		require.ErrorAs(t, s.Commit(t.Context(), r.step(1)), &refused)
		assert.Nil(t, refused.Current)
		require.ErrorIs(t, s.RequestCancel(t.Context(), r.Key, state.CancelRequest{}), state.ErrNotFound)
		require.ErrorIs(t, s.Sent(t.Context(), b, all(b)), outbox.ErrClaimLost)
		require.ErrorIs(t, s.Park(t.Context(), b, b.Messages[0].ID, "why"), outbox.ErrClaimLost)
		require.ErrorIs(t, s.Unpark(t.Context(), b.Messages[0].ID, true, "why"), outbox.ErrNotParked)
		assert.Empty(t, items(t, p, s, r.Key))
	})
}

// A holder that has lost its lease can still write siblings; the one that counts is another item.
func TestAZombiesSiblingNeverCounts(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p) // the zombie's process
		other := another(t, p, s)
		r := newCostlyRun(2, 1000, 1999)
		r.create(t, s)
		zombie := costlyRun{r.Clone(), string(jsonOf(2000))}
		take := r.step(0)
		take.Owner, take.Steps, take.CurrentStep, take.Runs = "second", nil, r.Plan[0], 2
		r.commit(t, other, take)

		late := zombie.step(0)
		late.WriteID = "zombie"
		require.ErrorIs(t, s.Commit(t.Context(), late), state.ErrConflict)
		mine := r.step(0)
		mine.WriteID = "mine"
		r.commit(t, other, mine)
		require.ErrorIs(t, s.Commit(t.Context(), late), state.ErrConflict)
		r.stored(t, s)
		assert.Equal(t, []string{"/input/" + padded("w0", idLength), "/step/0/mine", "/step/0/zombie", "run"}, parts(t, p, s, r.Key))
	})
}

func TestDeleteRemovesAllButWhatMayBeOnItsWay(t *testing.T) {
	p := dynamotest.Start(t, true)
	s, clk := fakeStore(t, p)
	r := newCostlyRun(2, 1000, 2000)
	r.create(t, s)
	r.commit(t, s, r.step(0))
	orphan := costlyRun{r.Clone(), r.result}
	late := orphan.step(1)
	late.WriteID, late.IfRevision = "orphan", 7
	require.ErrorIs(t, s.Commit(t.Context(), late), state.ErrConflict)
	require.Len(t, parts(t, p, s, r.Key), 4)

	require.NoError(t, s.Delete(t.Context(), r.Key))
	assert.Equal(t, []string{"/step/1/orphan"}, parts(t, p, s, r.Key), "its header may be on its way")
	clk.Advance(16 * time.Minute)
	require.NoError(t, s.Delete(t.Context(), r.Key))
	assert.Empty(t, parts(t, p, s, r.Key))
	require.NoError(t, s.Delete(t.Context(), r.Key), "nothing to delete")
}

func TestSiblingsExpireAYearAfterTheRetention(t *testing.T) {
	p := dynamotest.Start(t, true)
	s, clk := fakeStore(t, p)
	for _, c := range []struct {
		retention time.Duration
		want      types.AttributeValue
	}{
		{time.Hour, &types.AttributeValueMemberN{Value: "1893459600"}},
		{0, nil},
	} {
		clk.Set(time.Unix(1893459600-3600-365*24*3600, 0).Add(-time.Nanosecond))
		r := newCostlyRun(1, 1000, 60)
		r.Retention = c.retention
		r.create(t, s)
		assert.Equal(t, c.want, items(t, p, s, r.Key)["/input/"+r.WriteID]["expiration"])
		require.NoError(t, s.Delete(t.Context(), r.Key))
	}
}

// A store that has not seen the run before writes what another one reads.
func TestAChangeByAStoreThatHasNotSeenTheRun(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		r := newCostlyRun(3, 1000, 2000)
		r.create(t, s)
		for i := range r.Plan {
			r.commit(t, another(t, p, s), r.step(i))
			r.stored(t, another(t, p, s))
		}
		assert.Zero(t, entries(t, s))
		it := items(t, p, s, r.Key)
		assert.NotNil(t, it["/step/1/"+padded("w2", idLength)]["expiration"], "it has looked up the retention")
	})
}

// Between the look for the pivot and the request's own write, the plan gets a pivot, and that is done.
func TestACancelIsNotMisledByAPlanThatGrowsMeanwhile(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		other := another(t, p, s)
		r := newCostlyRun(2, 100, 60)
		r.create(t, s)
		p.BreakOnce(nil, func(q dynamotest.Request) bool {
			if q.Operation != "UpdateItem" {
				return false
			}
			p.Break(nil)
			ch := r.step(0)
			ch.Plan, ch.Pivot = append(slices.Clone(r.Plan), "third"), "third"
			ch.Steps = append(ch.Steps, state.StepChange{Index: 2, StepRecord: state.StepRecord{Name: "third", Status: state.StepDone, Attempts: 1}})
			assert.NoError(t, other.Commit(t.Context(), ch))
			assert.NoError(t, ch.Apply(r.Record))
			return true
		})
		require.ErrorIs(t, s.RequestCancel(t.Context(), r.Key, state.CancelRequest{Reason: "why"}), state.ErrNotAllowed)
		r.stored(t, s)
	})
}

package dynamostore_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
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

// A payload whose sibling is gone is told, where the run still needs it; the record comes all the same.
func TestLostPayloads(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := newCostlyRun(2, 1000, 2000)
	r.create(t, s)
	r.commit(t, s, r.step(0))
	remove(t, p, s, r.Key, "/input/"+padded("w0", idLength))

	got, err := s.Get(t.Context(), r.Key)
	require.ErrorIs(t, err, state.ErrCorrupt)
	require.ErrorContains(t, err, "the input is lost")
	require.NotNil(t, got)
	assert.Nil(t, got.Input)
	assert.Equal(t, r.Steps, got.Steps)
	existing, err := s.Create(t.Context(), newCostlyRun(2, 1000, 2000).Record)
	require.ErrorIs(t, err, state.ErrCorrupt)
	assert.Equal(t, got, existing)
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err, "one run's loss must not keep the others from being listed")
	assert.Equal(t, []*state.Record{got}, page.Records)

	last := r.step(1)
	last.Response = jsonOf(3000)
	r.commit(t, s, last)
	got, err = s.Get(t.Context(), r.Key)
	require.NoError(t, err, "an ended run answers without its input")
	assert.Equal(t, r.Response, got.Response)
	remove(t, p, s, r.Key, "/response/"+last.WriteID)
	_, err = s.Get(t.Context(), r.Key)
	require.ErrorContains(t, err, "the result is lost")
}

// Between the reading of the header and that of the siblings, a relay sends the message whose body is one of them.
func TestAReaderIsNotMisledByABodyThatIsSentMeanwhile(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := claimedAndEnded(t, s)
	relay := another(t, p, s)
	meanwhile := p.BreakOnce(nil, func(q dynamotest.Request) bool {
		if q.Operation != "BatchGetItem" {
			return false
		}
		p.Break(nil)
		assert.NoError(t, relay.Sent(t.Context(), batchOf(r), all(batchOf(r))))
		return true
	})
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	require.True(t, meanwhile())
	require.NoError(t, r.Outbox.Sent(batchOf(r), all(batchOf(r))))
	r.ExpiresAt = anExpiry
	same(t, r, got)
	assert.Equal(t, []string{"run"}, parts(t, p, s, r.Key), "the body has gone with its message")
}

func TestRecordsOfANewerVersionAreLeftAlone(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		r := emitting(t, s)
		edit(t, p, s, r.Key, "record_version", &types.AttributeValueMemberN{Value: "2"})
		_, err := s.Get(t.Context(), r.Key)
		require.ErrorIs(t, err, state.ErrNewerRecord)
		_, err = s.Create(t.Context(), newCostlyRun(1, 100, 60).Record)
		require.ErrorIs(t, err, state.ErrNewerRecord)
		require.ErrorIs(t, s.RequestCancel(t.Context(), r.Key, state.CancelRequest{}), state.ErrNewerRecord)
		page, err := s.List(t.Context(), state.Query{})
		require.NoError(t, err)
		assert.Empty(t, page.Records)
		batches, err := s.Claim(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		assert.Empty(t, batches)
	})
}

func TestRecordsThatCantBeReadAreToldOf(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	bad := newCostlyRun(1, 100, 60)
	bad.Key = "t#o#bad"
	bad.create(t, s)
	good := emitting(t, s)
	for attribute, v := range map[string]types.AttributeValue{
		"steps": &types.AttributeValueMemberS{Value: "none"}, "status": &types.AttributeValueMemberS{Value: "DANCING"},
		"revision": &types.AttributeValueMemberN{Value: "1.5"}, "plan": &types.AttributeValueMemberS{Value: "a%"},
		"failure": &types.AttributeValueMemberS{Value: "no JSON"}, "audit": &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberN{Value: "1"}}},
		"outbox": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"/a/0": &types.AttributeValueMemberS{Value: "?"}}},
	} {
		t.Run(attribute, func(t *testing.T) {
			before := items(t, p, s, bad.Key)["run"][attribute]
			edit(t, p, s, bad.Key, attribute, v)
			_, err := s.Get(t.Context(), bad.Key)
			require.ErrorIs(t, err, state.ErrCorrupt)
			_, err = s.List(t.Context(), state.Query{})
			require.ErrorIs(t, err, state.ErrCorrupt)
			require.ErrorContains(t, err, bad.Key)

			told := 0
			patient := another(t, p, s, dynamostore.WithUnreadable(func(key string, err error) {
				told++
				assert.Equal(t, bad.Key, key)
				assert.ErrorIs(t, err, state.ErrCorrupt)
			}))
			page, err := patient.List(t.Context(), state.Query{})
			require.NoError(t, err)
			require.Len(t, page.Records, 1)
			assert.Equal(t, good.Key, page.Records[0].Key)
			assert.Equal(t, 1, told)
			if before != nil {
				edit(t, p, s, bad.Key, attribute, before)
			} else {
				require.NoError(t, s.Delete(t.Context(), bad.Key))
				bad.create(t, s)
			}
		})
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

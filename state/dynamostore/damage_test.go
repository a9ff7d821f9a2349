package dynamostore_test

import (
	"fmt"
	"slices"
	"strings"
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

// A step must not be left out before another one, and no write may say of one that it can't be.
func TestImpossibleChangesAreRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		r := newCostlyRun(2, 100, 60)
		r.create(t, s)
		for name, spoil := range map[string]func(ch *state.Change){
			"a gap": func(ch *state.Change) { ch.Steps[0].Index = 3 },
			"a gap in the change": func(ch *state.Change) {
				ch.Steps = append(ch.Steps, ch.Steps[0], ch.Steps[0])
				ch.Steps[1].Index, ch.Steps[2].Index = 2, 4
			},
			"before the first":        func(ch *state.Change) { ch.Steps[0].Index = -1 },
			"an expiry while it runs": func(ch *state.Change) { ch.ExpiresAt = state.CeilSecond(time.Now()) },
			"a status from nowhere":   func(ch *state.Change) { ch.Status = state.StatusReversed },
			"no status":               func(ch *state.Change) { ch.Status = "" },
		} {
			for _, writer := range []*dynamostore.Store{s, another(t, p, s)} {
				ch := r.step(0)
				spoil(ch)
				require.ErrorIs(t, writer.Commit(t.Context(), ch), state.ErrTransition, name)
				require.ErrorIs(t, ch.Check(r.Record), state.ErrTransition, "so says the contract")
				ch.IfRevision = 7
				require.ErrorIs(t, writer.Commit(t.Context(), ch), state.ErrConflict, "the fence comes first")
			}
		}
		r.stored(t, s)
		// Appending just behind the last, and one more behind that, is right.
		ch := r.step(0)
		ch.Plan = append(slices.Clone(r.Plan), "third", "fourth")
		for i := 2; i < 4; i++ {
			ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: state.StepRecord{Name: ch.Plan[i], Status: state.StepPending}})
		}
		ch.Steps = append(ch.Steps, ch.Steps[2])
		ch.Steps[3].Status = state.StepSkipped // the later entry of a step counts
		r.commit(t, s, ch)
		r.stored(t, s)
	})
}

// DynamoDB takes expressions of up to 4 KB and 300 operators, which local servers don't check.
func TestExpressionsStayWithinDynamoDBsLimits(t *testing.T) {
	p := dynamotest.Start(t, true)
	seen := &capture{Client: dynamotest.Client(t, p.URL)}
	s, err := dynamostore.New(seen, newTable(t, dynamotest.Client(t, p.URL)))
	require.NoError(t, err)
	within := func() {
		t.Helper()
		for _, e := range []string{*seen.update.UpdateExpression, *seen.update.ConditionExpression} {
			assert.LessOrEqual(t, len(e), 4096)
			assert.LessOrEqual(t, strings.Count(e, "=")+strings.Count(e, "(")+strings.Count(e, " AND "), 300)
		}
	}
	r := newCostlyRun(40, 100, 60)
	r.create(t, s)
	ch := r.step(0)
	for i := 1; i < 40; i++ {
		ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: state.StepRecord{Name: r.Plan[i], Status: state.StepPending, Attempts: i}})
	}
	for i := range outbox.MaxMessages {
		ch.Messages = append(ch.Messages, message(fmt.Sprintf("%s/%s/%d", r.Key, r.Plan[0], i), "body", r.CreatedAt))
	}
	r.commit(t, s, ch)
	within()
	r.stored(t, s)
	batches, err := s.Claim(t.Context(), 1000, time.Minute)
	require.NoError(t, err)
	require.Len(t, batches[0].Messages, outbox.MaxMessages)
	commit(t, s, r.Record, to(r.Record, state.StatusCompleted))
	require.NoError(t, s.Sent(t.Context(), batches[0], all(batches[0])))
	within()
	assert.Zero(t, entries(t, s))
}

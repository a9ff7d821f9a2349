package dynamostore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// The table of costs, by plain Changes: what a run's holder sends, with every name and every value as long as an ordinary
// run has them. cost_engine_test.go has the same by the engine.

// metered is a store whose cost is counted.
type metered struct {
	*dynamostore.Store
	meter *dynamostore.Meter
}

func newMetered(t *testing.T, opts ...dynamostore.Option) metered {
	t.Helper()
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	meter, err := dynamostore.NewMeter(client, opts...)
	require.NoError(t, err)
	store, err := dynamostore.New(meter, newTable(t, client, opts...), opts...)
	require.NoError(t, err)
	return metered{store, meter}
}

// costs checks the units since the last look.
func (m metered) costs(t *testing.T, writes, reads float64) {
	t.Helper()
	r := m.meter.Report()
	t.Logf("%v write units (index %v, refused %v), %v read units: %v", r.WriteUnits, r.IndexUnits, r.RefusedUnits, r.ReadUnits, r.Requests)
	assert.LessOrEqual(t, r.WriteUnits, writes, "write units")
	assert.LessOrEqual(t, r.ReadUnits, reads, "read units")
	assert.NotZero(t, r.WriteUnits)
	m.meter.Reset()
}

// costlyRun is a run as its holder knows it.
type costlyRun struct {
	*state.Record
	result string
}

const (
	keyLength  = 64
	idLength   = 22
	nameLength = 12
)

func padded(s string, n int) string { return s + strings.Repeat("x", n-len(s)) }

// jsonOf is a JSON object of n bytes.
func jsonOf(n int) json.RawMessage {
	return json.RawMessage(`{"v":"` + strings.Repeat("a", n-len(`{"v":""}`)) + `"}`)
}

func newCostlyRun(steps, input, result int) *costlyRun {
	key := "tenant-a#create_order#"
	at := state.Milli(time.Now())
	rec := &state.Record{
		Key: padded(key, keyLength), Operation: "create_order", Version: 1, Retention: 30 * 24 * time.Hour,
		Status: state.StatusInProgress, PayloadHash: padded("1:", 45), Input: jsonOf(input),
		Owner: padded("owner", idLength), WriteID: padded("w0", idLength), Runs: 1, LeaseUntil: at.Add(time.Minute),
		Revision: 1, CreatedAt: at, UpdatedAt: at,
	}
	for i := range steps {
		name := padded(fmt.Sprintf("step_%d_", i), nameLength)
		rec.Plan = append(rec.Plan, name)
		rec.Steps = append(rec.Steps, state.StepRecord{Name: name, Status: state.StepPending})
	}
	rec.CurrentStep = rec.Plan[0]
	return &costlyRun{rec, string(jsonOf(result))}
}

// step is the change that records the step at i, a quarter of a second after the one before, and completes the run with
// the last one.
func (r *costlyRun) step(i int) *state.Change {
	started := r.CreatedAt.Add(time.Duration(i) * 250 * time.Millisecond)
	ended := started.Add(240 * time.Millisecond)
	ch := &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, IfNoCancel: true, WriteID: padded(fmt.Sprintf("w%d", i+1), idLength),
		Owner: r.Owner, Runs: r.Runs, Status: state.StatusInProgress, LeaseUntil: ended.Add(time.Minute), UpdatedAt: ended,
	}
	st := state.StepRecord{Name: r.Plan[i], Status: state.StepDone, Attempts: 1, Output: json.RawMessage(r.result), StartedAt: started, EndedAt: ended}
	ch.Steps = []state.StepChange{{Index: i, StepRecord: st}}
	if i+1 < len(r.Plan) {
		ch.CurrentStep = r.Plan[i+1]
		return ch
	}
	ch.Status, ch.Owner, ch.LeaseUntil, ch.Response = state.StatusCompleted, "", time.Time{}, jsonOf(60)
	ch.ExpiresAt = r.Expiry(ended)
	return ch
}

func (r *costlyRun) create(t *testing.T, s state.Store) {
	t.Helper()
	existing, err := s.Create(t.Context(), r.Record)
	require.NoError(t, err)
	require.Nil(t, existing)
}

func (r *costlyRun) commit(t *testing.T, s state.Store, ch *state.Change) {
	t.Helper()
	require.NoError(t, s.Commit(t.Context(), ch))
	require.NoError(t, ch.Apply(r.Record))
}

func (r *costlyRun) complete(t *testing.T, s state.Store) {
	t.Helper()
	r.create(t, s)
	for i := range r.Plan {
		r.commit(t, s, r.step(i))
	}
}

// stored checks that what was paid for is there.
func (r *costlyRun) stored(t *testing.T, s state.Store) {
	t.Helper()
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	assert.Equal(t, r.Record, got)
}

// The header stays under 1 KB all the way, with room to spare: every write of an ordinary run is a single unit.
func TestHeaderOfAnOrdinaryRunIsUnder1KB(t *testing.T) {
	s, r := newMetered(t), newCostlyRun(5, 100, 60)
	r.create(t, s)
	for i := range r.Plan {
		r.commit(t, s, r.step(i))
		size, err := dynamostore.HeaderSize(t.Context(), s.Store, r.Key)
		require.NoError(t, err)
		t.Logf("after step %d: %d bytes", i, size)
		assert.LessOrEqual(t, size, 1024-64)
	}
}

func TestCostOfARunWithoutTheIndex(t *testing.T) {
	s, r := newMetered(t, dynamostore.WithoutIndex()), newCostlyRun(5, 100, 60)
	r.complete(t, s)
	s.costs(t, 6, 0)
	r.stored(t, s)
}

func TestCostOfARun(t *testing.T) {
	s, r := newMetered(t), newCostlyRun(5, 100, 60)
	r.complete(t, s)
	assert.InDelta(t, 2, s.meter.Report().IndexUnits, 0, "one to enter the index, one to leave it")
	s.costs(t, 8, 0)
	r.stored(t, s)
}

func TestCostOfADuplicate(t *testing.T) {
	s, r := newMetered(t), newCostlyRun(5, 100, 60)
	r.complete(t, s)
	s.meter.Reset()
	again := newCostlyRun(5, 100, 60)
	existing, err := s.Create(t.Context(), again.Record)
	require.NoError(t, err)
	s.costs(t, 1, 0)
	assert.Equal(t, r.Record, existing)
}

func TestCostOfAResume(t *testing.T) {
	s, r := newMetered(t, dynamostore.WithoutIndex()), newCostlyRun(5, 100, 60)
	r.create(t, s)
	r.commit(t, s, r.step(0))
	r.commit(t, s, r.step(1))
	// It dies in step 3. Another one comes with the same key: its Create is refused and brings the record; then it takes
	// the run up.
	other, err := dynamostore.New(s.meter, tableOf(t, s), dynamostore.WithoutIndex())
	require.NoError(t, err)
	existing, err := other.Create(t.Context(), newCostlyRun(5, 100, 60).Record)
	require.NoError(t, err)
	require.Equal(t, r.Record, existing)
	r.Record = existing
	take := r.step(2)
	take.Owner, take.Runs, take.CurrentStep = padded("other", idLength), 2, r.Plan[2]
	take.Steps[0].Status, take.Steps[0].Output, take.Steps[0].Unknown, take.Steps[0].EndedAt = state.StepPending, nil, true, time.Time{}
	r.commit(t, other, take)
	for i := 2; i < 5; i++ {
		ch := r.step(i)
		ch.Steps[0].Attempts = 1 + len(r.Plan)%2
		r.commit(t, other, ch)
	}
	// Seven, plus the take-up: the six of a run, and the refused Create.
	s.costs(t, 7+1, 1)
	r.stored(t, s)
}

func tableOf(t *testing.T, m metered) string {
	t.Helper()
	return dynamostore.TableOf(m.Store)
}

func TestCostOfLargeResults(t *testing.T) {
	s, r := newMetered(t, dynamostore.WithoutIndex()), newCostlyRun(20, 100, 1800)
	r.complete(t, s)
	s.costs(t, 36+2*20, 0)
	r.stored(t, s)
}

func TestCostOfALargeInput(t *testing.T) {
	s, r := newMetered(t, dynamostore.WithoutIndex()), newCostlyRun(5, 30_000, 60)
	r.complete(t, s)
	s.costs(t, 6+30, 1)
	r.stored(t, s)

	s.meter.Reset()
	existing, err := s.Create(t.Context(), newCostlyRun(5, 30_000, 60).Record)
	require.NoError(t, err)
	assert.Equal(t, r.Record, existing)
	assert.Zero(t, s.meter.Report().WriteUnits, "a duplicate of a large input does not pay for writing it")
}

// A message of 100 bytes, emitted by any of the steps, is claimed by the closing write and removed by the inline relay.
func TestCostOfAMessage(t *testing.T) {
	for at := range 5 {
		t.Run(fmt.Sprintf("from step %d", at), func(t *testing.T) {
			messageCosts(t, newMetered(t, dynamostore.WithoutIndex()), at, 9)
		})
		t.Run(fmt.Sprintf("from step %d, in the index", at), func(t *testing.T) {
			s := newMetered(t)
			// With IDs as long as here, the index's own attribute takes the header over 1 KB one write earlier.
			messageCosts(t, s, at, 9+2+1)
			assert.Zero(t, entries(t, s.Store))
		})
	}
}

func messageCosts(t *testing.T, s metered, at int, units float64) {
	t.Helper()
	r := newCostlyRun(5, 100, 60)
	r.create(t, s)
	for i := range r.Plan {
		ch := r.step(i)
		if i == at {
			ch.Messages = []outbox.Message{{
				ID: r.Key + "/" + r.Plan[i] + "/0", Topic: "order-created", Key: "order-001", Body: []byte(jsonOf(100)),
				ContentType: "application/json", Time: ch.UpdatedAt,
			}}
		}
		if i == 4 {
			ch.ExpiresAt = time.Time{}
			ch.Claim = &state.Claim{Token: padded("claim", idLength), Until: state.Milli(ch.UpdatedAt.Add(time.Minute))}
		}
		r.commit(t, s, ch)
	}
	b := outbox.Batch{RunKey: r.Key, Token: r.Outbox.Token, Messages: r.Outbox.Sendable()}
	require.Len(t, b.Messages, 1)
	require.NoError(t, s.Sent(context.WithoutCancel(t.Context()), b, []string{b.Messages[0].ID}))
	assert.Zero(t, s.meter.Report().Refused)
	s.costs(t, units, 0)
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	assert.Empty(t, got.Outbox.Messages)
	assert.Empty(t, got.Outbox.Token)
	assert.False(t, got.ExpiresAt.IsZero(), "the same write has set the expiry")
}

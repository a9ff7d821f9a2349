package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newRecord(id string, at time.Time) *state.Record {
	return &state.Record{
		Key: state.Key{Tenant: "t", Operation: "op", ID: id}.String(), Operation: "op", Plan: []string{"a"},
		Status: state.StatusInProgress, CurrentStep: "a", Steps: []state.StepRecord{{Name: "a", Status: state.StepPending}},
		Input: json.RawMessage(`{"n":1}`), Owner: "w", WriteID: "w1", Runs: 1, Revision: 1, Retention: time.Hour,
		CreatedAt: at, UpdatedAt: at, LeaseUntil: at.Add(time.Minute),
	}
}

// ending is the change that completes r at the given time.
func ending(r *state.Record, at time.Time) *state.Change {
	return &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: "w2", Runs: 1, Status: state.StatusCompleted,
		UpdatedAt: at, ExpiresAt: r.Expiry(at),
	}
}

func create(t *testing.T, s *memory.Store, rec *state.Record) {
	t.Helper()
	existing, err := s.Create(t.Context(), rec)
	require.NoError(t, err)
	require.Nil(t, existing)
}

func message(r *state.Record, i int) outbox.Message {
	return outbox.Message{ID: fmt.Sprintf("%s/a/%d", r.Key, i), Topic: "topic", Body: []byte("body")}
}

func TestTheStoresClockDecidesWhatHasExpired(t *testing.T) {
	t.Parallel()
	var now clock.Fake
	now.Set(start)
	s := memory.New(memory.WithClock(&now))
	rec := newRecord("1", start)
	create(t, s, rec)
	require.NoError(t, s.Commit(t.Context(), ending(rec, start)))

	now.Advance(time.Hour - time.Millisecond)
	_, err := s.Get(t.Context(), rec.Key)
	require.NoError(t, err)
	existing, err := s.Create(t.Context(), newRecord("1", start))
	require.NoError(t, err)
	require.NotNil(t, existing)

	now.Advance(time.Millisecond)
	_, err = s.Get(t.Context(), rec.Key)
	require.ErrorIs(t, err, state.ErrNotFound)
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	require.Empty(t, page.Records)
	require.ErrorIs(t, s.RequestCancel(t.Context(), rec.Key, state.CancelRequest{}), state.ErrNotFound)
	var conflict *state.ConflictError
	require.ErrorAs(t, s.Commit(t.Context(), ending(rec, start)), &conflict)
	require.Nil(t, conflict.Current)
	create(t, s, newRecord("1", start))
}

func TestACreatorAheadOfTheStoreReplacesWhatIsExpiredToIt(t *testing.T) {
	t.Parallel()
	var now clock.Fake
	now.Set(start)
	s := memory.New(memory.WithClock(&now))
	rec := newRecord("1", start)
	create(t, s, rec)
	require.NoError(t, s.Commit(t.Context(), ending(rec, start)))
	create(t, s, newRecord("1", start.Add(time.Hour)))
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	assert.Equal(t, state.StatusInProgress, page.Records[0].Status)
}

func TestExpiredRecordsAreForgottenInTime(t *testing.T) {
	t.Parallel()
	var now clock.Fake
	now.Set(start)
	s := memory.New(memory.WithClock(&now))
	const n = 20_000
	for i := range n {
		rec := newRecord(fmt.Sprint(i), now.Now())
		create(t, s, rec)
		ch := ending(rec, now.Now())
		if i%2 == 0 {
			ch.Messages, ch.ExpiresAt = []outbox.Message{message(rec, 0)}, time.Time{}
			ch.Claim = &state.Claim{Token: "mine", Until: now.Now().Add(time.Minute)}
		}
		require.NoError(t, s.Commit(t.Context(), ch))
		if i%2 == 0 { // sent at once, by a relay that never claims
			require.NoError(t, s.Sent(t.Context(), outbox.Batch{RunKey: rec.Key, Token: "mine"}, []string{message(rec, 0).ID}))
		}
		now.Advance(time.Minute)
	}
	entries, queued := memory.Held(s)
	assert.Less(t, entries, 4096)
	assert.Less(t, queued, 4096)
}

func TestPagingSurvivesASweep(t *testing.T) {
	t.Parallel()
	s := memory.New()
	for i := range 1500 {
		create(t, s, newRecord(fmt.Sprint(i), start))
	}
	first, err := s.List(t.Context(), state.Query{Limit: 700})
	require.NoError(t, err)
	require.Len(t, first.Records, 700)
	for i := range 600 {
		require.NoError(t, s.Delete(t.Context(), newRecord(fmt.Sprint(i), start).Key))
	}
	for i := range 3000 {
		create(t, s, newRecord(fmt.Sprint("later", i), start))
	}
	second, err := s.List(t.Context(), state.Query{Limit: 5000, Cursor: first.Next})
	require.NoError(t, err)
	require.Len(t, second.Records, 800+3000)
	require.Equal(t, newRecord("700", start).Key, second.Records[0].Key)
	require.Empty(t, second.Next)
	_, err = s.List(t.Context(), state.Query{Cursor: "not one"})
	require.Error(t, err)
	_, _, err = s.Parked(t.Context(), "not one")
	require.Error(t, err)
}

func TestMaxRecord(t *testing.T) {
	t.Parallel()
	rec := newRecord("1", start)
	s := memory.New(memory.WithMaxRecord(rec.Size() + 1000))
	require.Equal(t, rec.Size()+1000, s.Capabilities().MaxRecord)
	create(t, s, rec)
	output := json.RawMessage(`"` + strings.Repeat("x", 600) + `"`)
	rewrite := func(r *state.Record, out json.RawMessage) error {
		return s.Commit(t.Context(), &state.Change{
			Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: "w1", Owner: "w", Runs: 1, Status: state.StatusInProgress, CurrentStep: "a",
			UpdatedAt: start, Steps: []state.StepChange{{Index: 0, StepRecord: state.StepRecord{Name: "a", Status: state.StepPending, Output: out}}},
		})
	}
	for range 10 { // what replaces as much as it brings never adds up to the limit
		current, err := s.Get(t.Context(), rec.Key)
		require.NoError(t, err)
		require.NoError(t, rewrite(current, output))
	}
	current, err := s.Get(t.Context(), rec.Key)
	require.NoError(t, err)
	err = rewrite(current, json.RawMessage(`"`+strings.Repeat("y", 1100)+`"`))
	require.ErrorIs(t, err, state.ErrTooLarge)
	require.NotContains(t, err.Error(), "yyy")
	after, err := s.Get(t.Context(), rec.Key)
	require.NoError(t, err)
	require.Equal(t, current, after)

	big := newRecord("2", start)
	big.Input = json.RawMessage(`"` + strings.Repeat("z", 2000) + `"`)
	_, err = s.Create(t.Context(), big)
	require.ErrorIs(t, err, state.ErrTooLarge)
	_, err = s.Get(t.Context(), big.Key)
	require.ErrorIs(t, err, state.ErrNotFound)

	unlimited := memory.New(memory.WithMaxRecord(0))
	big.Input = json.RawMessage(`"` + strings.Repeat("z", 17<<20) + `"`)
	create(t, unlimited, big)
	_, err = memory.New().Create(t.Context(), big)
	require.ErrorIs(t, err, state.ErrTooLarge)
}

func TestALargeRunIsNotPassedOverForEver(t *testing.T) {
	t.Parallel()
	var now clock.Fake
	s := memory.New(memory.WithClock(&now))
	emit := func(id string, n int) {
		rec := newRecord(id, now.Now())
		create(t, s, rec)
		ch := ending(rec, now.Now())
		ch.ExpiresAt = time.Time{}
		for i := range n {
			ch.Messages = append(ch.Messages, message(rec, i))
		}
		require.NoError(t, s.Commit(t.Context(), ch))
	}
	emit("small", 2)
	emit("large", 5)
	emit("small2", 1)
	claim := func(limit int) (sizes []int) {
		batches, err := s.Claim(t.Context(), limit, time.Minute)
		require.NoError(t, err)
		for _, b := range batches {
			sizes = append(sizes, len(b.Messages))
		}
		return sizes
	}
	assert.Empty(t, claim(0))
	assert.Equal(t, []int{2, 1}, claim(4), "what fits")
	assert.Equal(t, []int{4}, claim(4), "the first messages of a run that alone is more")
	assert.Empty(t, claim(4))
	now.Advance(time.Minute)
	assert.Equal(t, []int{2, 5, 1}, claim(100), "lapsed")
}

func BenchmarkFiveSteps(b *testing.B) {
	s := memory.New()
	ctx := context.Background()
	out := json.RawMessage(`{"id":"ch_0123456789","amount":1200,"currency":"EUR","ok":true}`)
	at := time.Now()
	plan := []string{"a", "b", "c", "d", "e"}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		rec := newRecord(fmt.Sprint(i), at)
		rec.Plan, rec.Steps = plan, make([]state.StepRecord, len(plan))
		for j, name := range plan {
			rec.Steps[j] = state.StepRecord{Name: name, Status: state.StepPending}
		}
		if _, err := s.Create(ctx, rec); err != nil {
			b.Fatal(err)
		}
		for j, name := range plan {
			ch := &state.Change{
				Key: rec.Key, IfOwner: "w", IfRevision: int64(j + 1), IfNoCancel: true, WriteID: name, Owner: "w", Runs: 1, Status: state.StatusInProgress,
				LeaseUntil: at, UpdatedAt: at, Steps: []state.StepChange{{Index: j, StepRecord: state.StepRecord{Name: name, Status: state.StepDone, Attempts: 1, Output: out, StartedAt: at, EndedAt: at}}},
			}
			if j == len(plan)-1 {
				ch.Status, ch.Response, ch.ExpiresAt, ch.LeaseUntil = state.StatusCompleted, out, state.CeilSecond(at.Add(time.Hour)), time.Time{}
			}
			if err := s.Commit(ctx, ch); err != nil {
				b.Fatal(err)
			}
		}
	}
}

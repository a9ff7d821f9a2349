package sqlite

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

func long(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// count is the number of rows in a table.
func count(t *testing.T, s *Store, table string) int {
	t.Helper()
	c := tool(t, s.path, zombiezen.OpenReadOnly)
	n, err := strconv.Atoi(query(t, c, `SELECT count(*) FROM `+table)[0][0])
	require.NoError(t, err)
	return n
}

// TestLogsAreCompacted: a run that is written to for ever takes no more room for ever, and neither does a take-up keep
// what was there before.
func TestLogsAreCompacted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	rec := create(t, s, sample("a"))
	c := tool(t, s.path, zombiezen.OpenReadOnly)
	length := func() int {
		n, err := strconv.Atoi(query(t, c, `SELECT octet_length(steps) FROM run_record`)[0][0])
		require.NoError(t, err)
		return n
	}
	longest := 0
	for i := range 5 * compactEvery {
		ch := follow(rec)
		ch.Steps = []state.StepChange{{Index: 0, StepRecord: state.StepRecord{
			Name: "first", Status: state.StepPending, Attempts: i, Unknown: true, StartedAt: rec.CreatedAt, Error: &state.Failure{Step: "first", Message: "again"},
		}}}
		commit(t, s, rec, ch)
		if i == 2*compactEvery {
			longest = length()
		}
	}
	same(t, rec, get(t, s, rec.Key))
	require.LessOrEqual(t, length(), compactEvery*120)
	require.LessOrEqual(t, length(), 2*longest+compactEvery*120)
	before := length()
	ch := follow(rec)
	ch.Owner, ch.Runs = "another", 2
	commit(t, s, rec, ch)
	require.Less(t, length(), min(before, 200))
	same(t, rec, get(t, s, rec.Key))
}

// TestLongPayloadsAreWrittenOnce, in rows of their own, and go when they are replaced or their run is deleted.
func TestLongPayloadsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	rec := sample("a")
	rec.Input = []byte(long(300_000))
	rec = create(t, s, rec)
	c := tool(t, s.path, zombiezen.OpenReadOnly)
	parts := func() (parts []string) {
		for _, row := range query(t, c, `SELECT part, octet_length(data) FROM run_payload ORDER BY part`) {
			parts = append(parts, row[0]+" "+row[1])
		}
		return parts
	}
	require.Equal(t, []string{"input 300002"}, parts())
	for i := range rec.Steps {
		commit(t, s, rec, stepDone(rec, i, long(2000+i)))
		same(t, rec, get(t, s, rec.Key))
	}
	require.Equal(t, []string{"input 300002", "step/0 2002", "step/1 2003", "step/2 2004"}, parts())
	require.Less(t, walBytes(t, s), 2*300_000, "the input is not written again with each step")

	commit(t, s, rec, stepDone(rec, 1, `"short"`))
	same(t, rec, get(t, s, rec.Key))
	commit(t, s, rec, stepDone(rec, 2, long(5000)))
	ch := follow(rec)
	ch.Status, ch.Owner, ch.LeaseUntil = state.StatusInterrupted, "", time.Time{}
	commit(t, s, rec, ch)
	ch = follow(rec)
	ch.Status, ch.Owner = state.StatusInProgress, "another" // a take-up, which cleans up
	commit(t, s, rec, ch)
	same(t, rec, get(t, s, rec.Key))
	require.Equal(t, []string{"input 300002", "step/0 2002", "step/2 5002"}, parts())

	ch = end(rec, time.Time{})
	ch.Response = []byte(long(3000))
	ch.Messages = []outbox.Message{message(rec, 0, long(4000))}
	commit(t, s, rec, ch)
	same(t, rec, get(t, s, rec.Key))
	require.Contains(t, parts(), "response 3002")
	require.Contains(t, parts(), "message/"+rec.Key+"/first/0 4002")
	batches, err := s.Claim(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Equal(t, long(4000), string(batches[0].Messages[0].Bytes()))
	require.NoError(t, s.Sent(t.Context(), batches[0], []string{batches[0].Messages[0].ID}))
	require.NotContains(t, parts(), "message/"+rec.Key+"/first/0 4002")
	require.NoError(t, s.Delete(t.Context(), rec.Key))
	for _, table := range tables {
		require.Zero(t, count(t, s, table), table)
	}
}

// walBytes is how much the store has written to its log.
func walBytes(t *testing.T, s *Store) int {
	t.Helper()
	n, err := strconv.Atoi(query(t, tool(t, s.path), `PRAGMA wal_checkpoint(PASSIVE)`)[0][1])
	require.NoError(t, err)
	return n * 4096
}

// TestExpiredRecordsAreRemoved on the way of other writes, with all that belongs to them, and none besides.
func TestExpiredRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	clk := &clock.Fake{}
	start := at()
	clk.Set(start)
	s := newStore(t, WithClock(clk))
	const n = 2*purgeMost + 10
	for i := range n {
		rec := sample(fmt.Sprint("ends ", i))
		rec.Input = []byte(long(inlineLimit + 1))
		rec = create(t, s, rec)
		commit(t, s, rec, end(rec, start.Add(time.Hour)))
	}
	kept := create(t, s, sample("kept"))
	forever := create(t, s, sample("for ever"))
	commit(t, s, forever, end(forever, time.Time{}))
	require.Equal(t, n+2, count(t, s, "run_record"))
	clk.Set(start.Add(2 * time.Hour))
	s.writer.mu.Lock()
	s.writer.purger.next = time.Time{} // it looks once in a while
	s.writer.mu.Unlock()
	for i := range 5 {
		ch := follow(kept)
		ch.WriteID = fmt.Sprint(i)
		commit(t, s, kept, ch)
	}
	for _, table := range []string{"run_record", "run_about"} {
		require.Equal(t, 2, count(t, s, table), table)
	}
	require.Zero(t, count(t, s, "run_payload"))
	same(t, kept, get(t, s, kept.Key))
	same(t, forever, get(t, s, forever.Key))
}

// TestARunIsKnownOnlyAsItIs: what a process remembers of runs never makes a write that the record would refuse.
func TestARunIsKnownOnlyAsItIs(t *testing.T) {
	t.Parallel()
	here := newStore(t)
	there := open(t, here.path)
	rec := create(t, here, sample("a"))
	mine := rec.Clone()

	// Another process takes the run up, with another plan.
	ch := follow(rec)
	ch.Owner, ch.Plan = "another", []string{"first", "second", "third", "fourth"}
	ch.Steps = []state.StepChange{{Index: 3, StepRecord: state.StepRecord{Name: "fourth", Status: state.StepPending}}}
	commit(t, there, rec, ch)
	var conflict *state.ConflictError
	require.ErrorAs(t, here.Commit(t.Context(), stepDone(mine, 0, `1`)), &conflict)
	same(t, rec, conflict.Current)

	// The same owner and revision, but another run in its place.
	other := open(t, here.path)
	stale := create(t, here, sample("b"))
	require.NoError(t, other.Delete(t.Context(), stale.Key))
	fresh := sample("c")
	fresh.Owner = stale.Owner
	fresh = create(t, other, fresh)
	require.Equal(t, stale.Revision, fresh.Revision)
	require.ErrorAs(t, here.Commit(t.Context(), stepDone(stale, 0, `1`)), &conflict)
	require.Nil(t, conflict.Current)
	same(t, fresh, get(t, here, fresh.Key))

	// Laid down and taken up by this process again.
	ch = follow(rec)
	ch.Status, ch.Owner, ch.LeaseUntil = state.StatusInterrupted, "", time.Time{}
	commit(t, here, rec, ch)
	ch = follow(rec)
	ch.Status, ch.Owner = state.StatusInProgress, "a third"
	commit(t, here, rec, ch)
	commit(t, here, rec, stepDone(rec, 3, `4`))
	same(t, rec, get(t, there, rec.Key))
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := newMemory(false)
	for i := range 3 * maxKnown {
		m.keep(strconv.Itoa(i), known{id: int64(i), owner: "o", revision: 1})
		require.LessOrEqual(t, len(m.runs), maxKnown)
		_, ok := m.at(strconv.Itoa(i), "o", 1)
		require.True(t, ok)
	}
	_, ok := m.at(strconv.Itoa(3*maxKnown-1), "o", 2)
	require.False(t, ok, "another revision")
	m.keep(strconv.Itoa(3*maxKnown-1), known{owner: ""})
	_, ok = m.at(strconv.Itoa(3*maxKnown-1), "", 0)
	require.False(t, ok, "laid down")
}

// TestWhatCantBeRead is an error that names the run, but for lists, where it can be passed over; what a newer version of the
// library has written always is.
func TestWhatCantBeRead(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	deaf := newStore(t)
	s := open(t, deaf.path, WithUnreadable(func(key string, err error) {
		require.ErrorIs(t, err, state.ErrCorrupt)
		told[key]++
	}))
	var recs []*state.Record
	for i := range 4 {
		rec := create(t, s, sample(fmt.Sprint(i)))
		ch := stepDone(rec, 0, `{"secret":1}`)
		ch.Messages = []outbox.Message{message(rec, 0, `1`)}
		commit(t, s, rec, ch)
		recs = append(recs, rec)
	}
	c := tool(t, s.path, zombiezen.OpenReadWrite)
	query(t, c, `UPDATE run_record SET steps = ',[0,"DONE","secret"' WHERE idempotency_key = ?`, recs[1].Key)
	query(t, c, `UPDATE run_about SET record_version = 2 WHERE id = (SELECT id FROM run_record WHERE idempotency_key = ?)`, recs[2].Key)

	for i, want := range map[int]error{1: state.ErrCorrupt, 2: state.ErrNewerRecord} {
		_, err := s.Get(t.Context(), recs[i].Key)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, recs[i].Key)
		require.NotContains(t, err.Error(), "secret")
		_, err = s.Create(t.Context(), recs[i])
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, s.RequestCancel(t.Context(), recs[i].Key, state.CancelRequest{}), want)
	}
	_, err := deaf.List(t.Context(), state.Query{})
	require.ErrorIs(t, err, state.ErrCorrupt)
	_, err = deaf.Claim(t.Context(), 10, time.Minute)
	require.ErrorIs(t, err, state.ErrCorrupt)
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	require.Len(t, page.Records, 2)
	batches, err := s.Claim(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, batches, 2, "a refused Claim claims nothing")
	require.Equal(t, map[string]int{recs[1].Key: 2}, told)
	require.NoError(t, s.Delete(t.Context(), recs[1].Key))
	_, err = deaf.List(t.Context(), state.Query{})
	require.NoError(t, err)

	query(t, c, `UPDATE run_record SET head = '{' WHERE idempotency_key = ?`, recs[3].Key)
	_, err = deaf.List(t.Context(), state.Query{LapsedBefore: at()})
	require.ErrorIs(t, err, state.ErrCorrupt)
	require.ErrorContains(t, err, recs[3].Key)
	query(t, c, `DELETE FROM run_about WHERE id = (SELECT id FROM run_record WHERE idempotency_key = ?)`, recs[3].Key)
	_, err = s.Create(t.Context(), recs[3])
	require.ErrorIs(t, err, state.ErrCorrupt)
	require.NoError(t, s.Delete(t.Context(), recs[3].Key))
	create(t, s, sample("3"))
}

// The messages of runs that a newer version has written, or that can't be read, are nobody's here. However many there are,
// those of the runs behind them are handed out.
func TestWhatCantBeReadIsNotInTheWayOfARelay(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	s := open(t, filepath.Join(t.TempDir(), "runs.db"), WithUnreadable(func(key string, _ error) { told[key]++ }))
	var keys []string
	for i := range 6 {
		rec := create(t, s, sample(fmt.Sprint(i)))
		ch := stepDone(rec, 0, `1`)
		ch.Messages = []outbox.Message{message(rec, 0, `1`)}
		commit(t, s, rec, ch)
		keys = append(keys, rec.Key)
	}
	c := tool(t, s.path, zombiezen.OpenReadWrite)
	for i, key := range keys[:4] {
		if i%2 == 0 {
			query(t, c, `UPDATE run_about SET record_version = 2 WHERE id = (SELECT id FROM run_record WHERE idempotency_key = ?)`, key)
		} else {
			query(t, c, `UPDATE run_record SET steps = ',[0,"DONE","secret"' WHERE idempotency_key = ?`, key)
		}
	}
	batches, err := s.Claim(t.Context(), 2, time.Minute)
	require.NoError(t, err)
	require.Len(t, batches, 2)
	for i, b := range batches {
		require.Equal(t, keys[4+i], b.RunKey)
	}
	require.Equal(t, map[string]int{keys[1]: 1, keys[3]: 1}, told)
}

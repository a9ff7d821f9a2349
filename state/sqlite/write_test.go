package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// gate holds the committer in a COMMIT until it is let go.
type gate struct {
	shut    atomic.Bool
	arrived chan struct{}
	open    chan struct{}
	commits atomic.Int64
	once    sync.Once
}

// gated is a store with a gate before its COMMITs.
func gated(t *testing.T) (*Store, *gate) {
	t.Helper()
	g := &gate{arrived: make(chan struct{}, 1024), open: make(chan struct{})}
	s := newStore(t, withPoints(failpoints{beforeCommit: g.point}))
	t.Cleanup(g.release)
	return s, g
}

func (g *gate) point() error {
	g.commits.Add(1)
	if g.shut.Load() {
		g.arrived <- struct{}{}
		<-g.open
	}
	return nil
}

// release lets the committer go, now and from then on.
func (g *gate) release() {
	g.once.Do(func() {
		g.shut.Store(false)
		close(g.open)
	})
}

// until waits until the condition holds.
func until(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, time.Millisecond, what)
}

func TestConcurrentWritesShareACommit(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	g.shut.Store(true)
	var wg sync.WaitGroup
	const n = 100
	errs := make([]error, n)
	write := func(i int) {
		wg.Go(func() { _, errs[i] = s.Create(context.Background(), sample(fmt.Sprint(i))) })
	}
	write(0)
	<-g.arrived
	for i := 1; i < n; i++ {
		write(i)
	}
	until(t, func() bool { return s.writer.queue.length.Load() == n-1 }, "all are queued")
	g.release()
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 2, g.commits.Load(), "the first, and all others together")
	for i := range n {
		get(t, s, sample(fmt.Sprint(i)).Key)
	}
}

// TestAFailingWriteHarmsNoOther: SQLite refuses one of the writes of a batch, and the others are made.
func TestAFailingWriteHarmsNoOther(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	old := create(t, s, sample("old"))
	c := tool(t, s.path, zombiezen.OpenReadWrite)
	query(t, c, `CREATE TRIGGER refuse BEFORE INSERT ON run_about WHEN new.operation = 'bad' BEGIN SELECT raise(ABORT, 'refused by the test'); END`)
	g.shut.Store(true)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	wg.Go(func() { _, errs[0] = s.Create(context.Background(), sample("0")) })
	<-g.arrived
	for i := 1; i < len(errs)-1; i++ {
		rec := sample(fmt.Sprint(i))
		if i == 3 {
			rec.Operation = "bad"
		}
		wg.Go(func() { _, errs[i] = s.Create(context.Background(), rec) })
	}
	ch := stepDone(old, 0, `1`)
	wg.Go(func() { errs[len(errs)-1] = s.Commit(context.Background(), ch) })
	until(t, func() bool { return s.writer.queue.length.Load() == int64(len(errs)-1) }, "all are queued")
	g.release()
	wg.Wait()
	for i, err := range errs {
		if i == 3 {
			require.ErrorContains(t, err, "refused by the test")
			require.NotErrorIs(t, err, ErrInDoubt, "it was rolled back")
			_, err := s.Get(t.Context(), sample("3").Key)
			require.ErrorIs(t, err, state.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		if i < len(errs)-1 {
			get(t, s, sample(fmt.Sprint(i)).Key)
		}
	}
	require.NoError(t, ch.Apply(old))
	same(t, old, get(t, s, old.Key))
	require.Equal(t, [][]string{{"0"}}, query(t, c, `SELECT count(*) FROM run_record r LEFT JOIN run_about a USING (id) WHERE a.id IS NULL`))
}

// TestAnErrorFromCommitIsInDoubt, whether it was made (the answer was lost) or not; sent again, the write is recognised or
// made.
func TestAnErrorFromCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprintf("made %t", made), func(t *testing.T) {
			t.Parallel()
			var fail atomic.Bool
			lost := func() error {
				if fail.Load() {
					return errors.New("lost")
				}
				return nil
			}
			p := failpoints{beforeCommit: lost}
			if made {
				p = failpoints{afterCommit: lost}
			}
			s := newStore(t, withPoints(p))
			rec := sample("a")
			inDoubt := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, ErrInDoubt)
				require.NotErrorIs(t, err, state.ErrConflict)
				require.NotErrorIs(t, err, state.ErrNotFound)
				require.ErrorContains(t, err, s.path)
				fail.Store(false)
			}
			fail.Store(true)
			_, err := s.Create(t.Context(), rec)
			inDoubt(err)
			existing, err := s.Create(t.Context(), rec)
			require.NoError(t, err)
			require.Equal(t, made, existing != nil)
			if made {
				require.Equal(t, rec.WriteID, existing.WriteID)
			}

			ch := stepDone(rec, 0, `{"a":1}`)
			fail.Store(true)
			inDoubt(s.Commit(t.Context(), ch))
			err = s.Commit(t.Context(), ch)
			require.NoError(t, ch.Apply(rec))
			if made {
				var conflict *state.ConflictError
				require.ErrorAs(t, err, &conflict)
				same(t, rec, conflict.Current)
			} else {
				require.NoError(t, err)
			}
			same(t, rec, get(t, s, rec.Key))

			fail.Store(true)
			inDoubt(s.RequestCancel(t.Context(), rec.Key, state.CancelRequest{Reason: "r", Actor: "a", At: at()}))
			require.Equal(t, made, get(t, s, rec.Key).Cancel != nil)

			fail.Store(true)
			ch = stepDone(rec, 1, `2`)
			ch.IfRevision = 1 // a refusal rests on what was written before it in the same transaction
			inDoubt(s.Commit(t.Context(), ch))
			require.ErrorIs(t, s.Commit(t.Context(), ch), state.ErrConflict)

			fail.Store(true)
			inDoubt(s.Delete(t.Context(), rec.Key))
			_, err = s.Get(t.Context(), rec.Key)
			require.Equal(t, made, errors.Is(err, state.ErrNotFound))
		})
	}
}

// TestReadsDontQueueBehindTheWriter, and see what was answered before.
func TestReadsDontQueueBehindTheWriter(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	rec := create(t, s, sample("a"))
	g.shut.Store(true)
	var wg sync.WaitGroup
	ch := stepDone(rec, 0, `1`)
	wg.Go(func() { assert.NoError(t, s.Commit(context.Background(), ch)) })
	<-g.arrived
	same(t, rec, get(t, s, rec.Key))
	page, err := s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	g.release()
	wg.Wait()
	require.NoError(t, ch.Apply(rec))
	same(t, rec, get(t, s, rec.Key))
}

func TestAForeignWriterIsWaitedForOnlySoLong(t *testing.T) {
	t.Parallel()
	s := newStore(t, WithBusyTimeout(20*time.Millisecond))
	rec := create(t, s, sample("a"))
	other := tool(t, s.path, zombiezen.OpenReadWrite)
	query(t, other, `BEGIN IMMEDIATE`)
	err := s.Commit(t.Context(), stepDone(rec, 0, `1`))
	require.ErrorContains(t, err, "busy timeout")
	require.ErrorContains(t, err, s.path)
	require.NotErrorIs(t, err, ErrInDoubt, "it was not begun")
	query(t, other, `ROLLBACK`)
	commit(t, s, rec, stepDone(rec, 0, `1`))

	patient := open(t, s.path, WithBusyTimeout(time.Minute))
	query(t, other, `BEGIN IMMEDIATE`)
	errs := make(chan error, 1)
	ch := stepDone(rec, 1, `2`)
	go func() { errs <- patient.Commit(context.Background(), ch) }()
	until(t, func() bool {
		if patient.writer.mu.TryLock() {
			patient.writer.mu.Unlock()
			return false
		}
		return true
	}, "it is at the lock")
	query(t, other, `ROLLBACK`)
	require.NoError(t, <-errs)
}

// TestAFullDisk: what doesn't fit is refused with an error that says so, what was there stays, and once there is room
// everything goes on.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	rec := create(t, s, sample("a"))
	pages := func(most string) {
		t.Helper()
		require.NoError(t, s.write(t.Context(), "test", "", func(tx *tx) (answer, err error) {
			_, err = tx.c.number(`PRAGMA max_page_count = ` + most)
			return nil, err
		}))
	}
	pages("1") // SQLite makes it what there is now
	large := sample("large")
	large.Input = []byte(`"` + strings.Repeat("x", 200_000) + `"`)
	_, err := s.Create(t.Context(), large)
	require.ErrorContains(t, err, "full")
	require.ErrorContains(t, err, s.path)
	require.NotErrorIs(t, err, state.ErrTooLarge)
	_, err = s.Get(t.Context(), large.Key)
	require.ErrorIs(t, err, state.ErrNotFound, "nothing of it was written")
	same(t, rec, get(t, s, rec.Key))
	commit(t, s, rec, stepDone(rec, 0, `"what fits is still written"`))
	pages("1000000")
	create(t, s, large)
	same(t, large, get(t, s, large.Key))
	same(t, rec, get(t, s, rec.Key))
	require.Equal(t, [][]string{{"ok"}}, query(t, tool(t, s.path, zombiezen.OpenReadOnly), `PRAGMA integrity_check`))
}

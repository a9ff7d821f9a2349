//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"
)

func newTurn(t *testing.T, path string, timeout time.Duration) *fileTurn {
	t.Helper()
	turn, ok := openTurn(path, timeout).(*fileTurn)
	require.True(t, ok)
	return turn
}

func TestTurnIsHandedOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	a, b := newTurn(t, path, time.Minute), newTurn(t, path, time.Minute)
	defer a.close()
	defer b.close()
	for range 50 {
		require.True(t, a.acquire(nil))
		got := make(chan bool, 1)
		go func() { got <- b.acquire(nil) }()
		until(t, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.wanted
		}, "b waits")
		a.release()
		require.True(t, <-got)
		require.ErrorIs(t, a.flock(syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK, "b has it")
		b.release()
	}
}

// TestTurnThatIsNeverHandedOver is gone without, is waited for once, and is not kept when it comes too late.
func TestTurnThatIsNeverHandedOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	stuck, b := newTurn(t, path, time.Minute), newTurn(t, path, 10*time.Millisecond)
	defer stuck.close()
	require.True(t, stuck.acquire(nil))
	began := time.Now()
	require.False(t, b.acquire(nil))
	require.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
	b.timeout = time.Hour
	require.False(t, b.acquire(nil), "it was waited for in vain, so it is not waited for again")
	b.timeout = 10 * time.Millisecond
	stuck.release()
	until(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.busy
	}, "the waiter has had it, and let go")
	require.True(t, stuck.acquire(nil), "nobody keeps it")
	stuck.release()
	require.True(t, b.acquire(nil), "all is as before")
	b.release()
	b.close()
}

// TestTurnClosedWhileItIsWaitedFor leaves a goroutine behind for as long as another process keeps the turn, and no longer.
func TestTurnClosedWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	stuck, b := newTurn(t, path, time.Minute), newTurn(t, path, time.Millisecond)
	require.True(t, stuck.acquire(nil))
	require.False(t, b.acquire(nil))
	b.close()
	stuck.release()
	<-b.gone
	stuck.close()
}

func TestTurnWithoutAFileIsNone(t *testing.T) {
	t.Parallel()
	none := openTurn(filepath.Join(t.TempDir(), "missing", "turn"), time.Minute)
	require.False(t, none.acquire(nil))
	none.release()
	none.close()
}

// TestAStoreGoesOnWithoutItsTurn: another process was stopped in the middle of its own.
func TestAStoreGoesOnWithoutItsTurn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	stuck := newTurn(t, path+".turn", time.Minute)
	require.True(t, stuck.acquire(nil))
	s := open(t, path, WithBusyTimeout(10*time.Millisecond))
	rec := create(t, s, sample("a"))
	for i := range rec.Steps {
		commit(t, s, rec, stepDone(rec, i, `1`))
	}
	same(t, rec, get(t, s, rec.Key))
	stuck.release()
	stuck.close()
	require.NoError(t, os.Remove(path+".turn"), "the file may be removed when nobody has it open, or never")
}

// TestAWriteBesideAStoppedProcess, which has the turn and SQLite's lock too.
func TestAWriteBesideAStoppedProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, path, WithBusyTimeout(20*time.Millisecond))
	stuck := newTurn(t, path+".turn", time.Minute)
	require.True(t, stuck.acquire(nil))
	other := tool(t, path, zombiezen.OpenReadWrite)
	query(t, other, `BEGIN IMMEDIATE`)
	for range 2 {
		_, err := s.Create(t.Context(), sample("a"))
		require.ErrorContains(t, err, "locked for longer than the busy timeout")
		require.NotErrorIs(t, err, ErrInDoubt)
	}
	query(t, other, `COMMIT`)
	create(t, s, sample("a"))
	stuck.release()
	stuck.close()
}

// TestTheTurnAndTheLockShareTheBusyTimeout: what the turn has taken is not waited for the lock again. With an hour for
// each, this test would not end.
func TestTheTurnAndTheLockShareTheBusyTimeout(t *testing.T) {
	t.Parallel()
	s := newStore(t, WithBusyTimeout(time.Hour))
	turn, ok := s.writer.turn.(*fileTurn)
	require.True(t, ok)
	require.Equal(t, time.Hour/2, turn.timeout)
	other := tool(t, s.path, zombiezen.OpenReadWrite)
	query(t, other, `BEGIN IMMEDIATE`)
	s.writer.mu.Lock()
	err := s.writer.beginPatiently(time.Now())
	s.writer.mu.Unlock()
	require.Equal(t, zombiezen.ResultBusy, zombiezen.ErrCode(err).ToPrimary())
	query(t, other, `COMMIT`)
	create(t, s, sample("a"))
}

// TestOpenGivesUpItsTurnWithItsContext: a new file is waited for, but not when its caller has gone.
func TestOpenGivesUpItsTurnWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	stuck := newTurn(t, path+".turn", time.Minute)
	require.True(t, stuck.acquire(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, path, WithBusyTimeout(time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	stuck.release()
	stuck.close()
	create(t, open(t, path), sample("a"))
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		require.True(t, a.acquire())
		got := make(chan bool, 1)
		go func() { got <- b.acquire() }()
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
	require.True(t, stuck.acquire())
	began := time.Now()
	require.False(t, b.acquire())
	require.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
	b.timeout = time.Hour
	require.False(t, b.acquire(), "it was waited for in vain, so it is not waited for again")
	b.timeout = 10 * time.Millisecond
	stuck.release()
	until(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.busy
	}, "the waiter has had it, and let go")
	require.True(t, stuck.acquire(), "nobody keeps it")
	stuck.release()
	require.True(t, b.acquire(), "all is as before")
	b.release()
	b.close()
}

// TestTurnClosedWhileItIsWaitedFor leaves a goroutine behind for as long as another process keeps the turn, and no longer.
func TestTurnClosedWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	stuck, b := newTurn(t, path, time.Minute), newTurn(t, path, time.Millisecond)
	require.True(t, stuck.acquire())
	require.False(t, b.acquire())
	b.close()
	stuck.release()
	<-b.gone
	stuck.close()
}

func TestTurnWithoutAFileIsNone(t *testing.T) {
	t.Parallel()
	none := openTurn(filepath.Join(t.TempDir(), "missing", "turn"), time.Minute)
	require.False(t, none.acquire())
	none.release()
	none.close()
}

// TestAStoreGoesOnWithoutItsTurn: another process was stopped in the middle of its own.
func TestAStoreGoesOnWithoutItsTurn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	stuck := newTurn(t, path+".turn", time.Minute)
	require.True(t, stuck.acquire())
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

package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAQueuedWriteIsWithdrawnWithItsContext(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	old := create(t, s, sample("old"))
	g.shut.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Create(context.Background(), sample("first"))
		assert.NoError(t, err)
	})
	<-g.arrived
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { errs <- s.Commit(ctx, stepDone(old, 0, `1`)) }()
	go func() {
		_, err := s.Create(ctx, sample("second"))
		errs <- err
	}()
	until(t, func() bool { return s.writer.queue.length.Load() == 2 }, "both are queued")
	cancel()
	for range 2 {
		err := <-errs // while the committer is still held
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrInDoubt)
		require.ErrorContains(t, err, "nothing was written")
	}
	g.release()
	wg.Wait()
	create(t, s, sample("second"))
	same(t, old, get(t, s, old.Key))
}

// committed starts a write that the committer makes, not its caller.
func committed(t *testing.T, s *Store, write func()) {
	t.Helper()
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	go write()
	until(t, func() bool { return s.writer.queue.length.Load() == 1 }, "it is queued")
}

// TestAWriteThatHasBegunIsAnswered: its context ends while it is being committed; the answer is waited for, but not for ever.
func TestAWriteThatHasBegunIsAnswered(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	g.shut.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	rec := sample("a")
	committed(t, s, func() {
		_, err := s.Create(ctx, rec)
		errs <- err
	})
	<-g.arrived
	cancel()
	err := <-errs // the committer is still held, so this is after the grace
	require.ErrorIs(t, err, ErrInDoubt)
	require.ErrorIs(t, err, context.Canceled)
	rec.Key = "scribbled over" // the caller has it back
	g.release()
	until(t, func() bool {
		_, err := s.Get(context.Background(), sample("a").Key)
		return err == nil
	}, "it was committed in the end")
}

func TestAWriteThatHasBegunGetsItsRealAnswer(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{true, false} {
		s, g := gated(t)
		g.shut.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		write := func() {
			_, err := s.Create(ctx, sample("a"))
			errs <- err
		}
		if alone {
			go write()
		} else {
			committed(t, s, write)
		}
		<-g.arrived
		cancel()
		g.release()
		require.NoError(t, <-errs, "alone: %t", alone)
	}
}

func TestCloseWaitsForWhatIsInHand(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	g.shut.Store(true)
	var wg sync.WaitGroup
	for _, id := range []string{"in hand", "queued"} {
		wg.Go(func() {
			_, err := s.Create(context.Background(), sample(id))
			assert.NoError(t, err)
		})
		if id == "in hand" {
			<-g.arrived
		}
	}
	until(t, func() bool { return s.writer.queue.length.Load() == 1 }, "one is queued")
	var closed atomic.Int64
	for range 3 {
		wg.Go(func() {
			assert.NoError(t, s.Close())
			closed.Add(1)
		})
	}
	until(t, func() bool {
		s.writer.queue.mu.Lock()
		defer s.writer.queue.mu.Unlock()
		return s.writer.queue.closed
	}, "Close has begun")
	require.ErrorIs(t, s.Delete(t.Context(), "x"), ErrClosed)
	require.Zero(t, closed.Load())
	g.release()
	wg.Wait()
	again := open(t, s.path)
	get(t, again, sample("in hand").Key)
	get(t, again, sample("queued").Key)
}

package clock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ clock.Clock = (*clock.Fake)(nil)

	errStop = errors.New("stop")
	start   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

const patience = 10 * time.Second

// fired is closed by the function that it gives to AfterFunc.
func fired() (f func(), done <-chan struct{}) {
	c := make(chan struct{})
	return func() { close(c) }, c
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "it was never called")
	}
}

func stopped(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	return ctx
}

func TestSystem(t *testing.T) {
	t.Parallel()
	c := clock.System()
	assert.WithinDuration(t, time.Now(), c.Now(), time.Second)
	before := c.Mono()
	require.NoError(t, c.Sleep(t.Context(), 2*time.Millisecond))
	assert.GreaterOrEqual(t, c.Mono()-before, 2*time.Millisecond)
	assert.ErrorIs(t, c.Sleep(stopped(t), time.Hour), errStop, "the cause, not just that it ended")
	f, done := fired()
	c.AfterFunc(time.Millisecond, f)
	await(t, done)
	timer := c.AfterFunc(time.Hour, func() { t.Error("called though stopped") })
	assert.True(t, timer.Reset(2*time.Hour))
	assert.True(t, timer.Stop())
	assert.False(t, timer.Stop())
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(errStop)
	assert.ErrorIs(t, c.Sleep(ctx, time.Hour), errStop)
}

func TestFakeStandsStillUntilItIsMoved(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	assert.WithinDuration(t, time.Now(), c.Now(), time.Minute)
	first := c.Now()
	assert.Equal(t, first, c.Now())
	assert.Zero(t, c.Mono())
	c.Set(start)
	assert.Equal(t, start, c.Now())
	c.Advance(time.Hour)
	assert.Equal(t, start.Add(time.Hour), c.Now())
	assert.Equal(t, time.Hour, c.Mono())
	c.Set(start.Add(-time.Hour)) // the wall clock jumps, and no time passes by it
	assert.Equal(t, start.Add(-time.Hour), c.Now())
	assert.Equal(t, time.Hour, c.Mono())
}

func TestFakeTimersFollowTheMonotonicClock(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	f, done := fired()
	var early atomic.Bool
	timer := c.AfterFunc(time.Second, func() { early.Store(c.Mono() < time.Second); f() })
	c.Set(start.Add(1000 * time.Hour))
	c.Advance(time.Second - 1)
	require.True(t, timer.Reset(1), "it is still set: neither the jump nor what has passed was enough")
	c.Advance(1)
	await(t, done)
	assert.False(t, early.Load())
	assert.False(t, timer.Stop(), "it has been called")
}

func TestFakeTimerIsStoppedAndSetAnew(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	var calls atomic.Int64
	timer := c.AfterFunc(time.Second, func() { calls.Add(1) })
	assert.True(t, timer.Stop())
	assert.False(t, timer.Stop())
	c.Advance(time.Hour)
	assert.False(t, timer.Reset(time.Second), "it was not set")
	assert.True(t, timer.Reset(2*time.Second), "it was")
	c.Advance(time.Second)
	assert.True(t, timer.Reset(3*time.Second))
	c.Advance(3 * time.Second)
	require.Eventually(t, func() bool { return calls.Load() == 1 }, patience, time.Millisecond)
	c.Advance(time.Hour)
	assert.False(t, timer.Reset(0), "due at once")
	require.Eventually(t, func() bool { return calls.Load() == 2 }, patience, time.Millisecond)
	assert.False(t, timer.Stop())
	assert.EqualValues(t, 2, calls.Load())
}

func TestFakeSleep(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	assert.NoError(t, c.Sleep(t.Context(), 0), "nothing to wait for")
	assert.NoError(t, c.Sleep(t.Context(), -time.Second))
	assert.ErrorIs(t, c.Sleep(stopped(t), 0), errStop)
	slept := make(chan error)
	go func() { slept <- c.Sleep(t.Context(), time.Minute) }()
	var err error
	require.Eventually(t, func() bool {
		c.Advance(time.Second)
		select {
		case err = <-slept:
			return true
		default:
			return false
		}
	}, patience, time.Millisecond)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, c.Mono(), time.Minute)

	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { slept <- c.Sleep(ctx, time.Minute) }()
	cancel(errStop)
	assert.ErrorIs(t, <-slept, errStop)
}

func TestAutoAdvance(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	c.Set(start)
	c.AutoAdvance()
	f, done := fired()
	c.AfterFunc(time.Minute, f)
	require.NoError(t, c.Sleep(t.Context(), time.Hour))
	assert.Equal(t, start.Add(time.Hour), c.Now())
	await(t, done)
	assert.ErrorIs(t, c.Sleep(stopped(t), time.Hour), errStop)
	assert.Equal(t, start.Add(time.Hour), c.Now(), "no time passes for a sleep that isn't slept")
}

func TestFakeConcurrently(t *testing.T) {
	t.Parallel()
	var c clock.Fake
	var calls atomic.Int64
	var all sync.WaitGroup
	const workers, each = 8, 50
	for range workers {
		all.Go(func() {
			for range each {
				timer := c.AfterFunc(time.Millisecond, func() { calls.Add(1) })
				c.Advance(time.Microsecond)
				timer.Reset(time.Millisecond)
				_, _ = c.Now(), c.Mono()
				c.Set(start)
			}
		})
	}
	all.Wait()
	c.Advance(time.Second)
	require.Eventually(t, func() bool { return calls.Load() >= workers*each }, patience, time.Millisecond)
	assert.GreaterOrEqual(t, c.Mono(), time.Second+workers*each*time.Microsecond)
}

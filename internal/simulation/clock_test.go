package simulation

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// simClock is one machine's clock. Its timers do not fire by themselves: those that are due wait for the scheduler, who
// fires one at a time.
type simClock struct {
	*clock.Fake // what makes it a Clock; none of its methods is used
	mu          sync.Mutex
	wall        time.Time
	mono        time.Duration
	timers      []*simTimer
	next        int
}

var _ clock.Clock = (*simClock)(nil)

type simTimer struct {
	c  *simClock
	at time.Duration
	f  func()
	id int
}

func newClock(wall time.Time) *simClock { return &simClock{Fake: new(clock.Fake), wall: wall} }

func (c *simClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *simClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// pass lets time pass.
func (c *simClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

// jump moves the wall clock alone.
func (c *simClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// due are the timers that may fire now, in order; soonest is how long it is to the next one otherwise.
func (c *simClock) due() (now []*simTimer, soonest time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if t.at <= c.mono {
			now = append(now, t)
		} else if d := t.at - c.mono; !more || d < soonest {
			soonest, more = d, true
		}
	}
	slices.SortFunc(now, func(a, b *simTimer) int { return a.id - b.id })
	return now, soonest, more
}

// fire runs a timer that is due, if it is still set.
func (t *simTimer) fire() {
	if t.Stop() {
		go t.f()
	}
}

func (c *simClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &simTimer{c: c, f: f}
	t.Reset(d)
	return t
}

func (t *simTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.unset()
	t.at, t.id = t.c.mono+max(d, 0), t.c.next
	t.c.next++
	t.c.timers = append(t.c.timers, t)
	return was
}

func (t *simTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.unset()
}

func (t *simTimer) unset() bool {
	n := len(t.c.timers)
	t.c.timers = slices.DeleteFunc(t.c.timers, func(o *simTimer) bool { return o == t })
	return len(t.c.timers) < n
}

// shortest is up to where a sleep is over at once: the pauses between two sendings of one write, during which a lock is
// held.
const shortest = 200 * time.Millisecond

func (c *simClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if d <= shortest {
		c.pass(d)
		return nil
	}
	done := make(chan struct{})
	t := c.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *simClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return inner, func() { t.Stop(); cancel(context.Canceled) }
}

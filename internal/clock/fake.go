package clock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Fake is a clock that stands still until it is moved. The zero value is ready and starts at the machine's time. Its
// methods may be called concurrently.
type Fake struct {
	mu     sync.Mutex
	wall   time.Time
	mono   time.Duration
	skips  bool
	timers []*fakeTimer
}

type fakeTimer struct {
	c   *Fake
	at  time.Duration
	f   func()
	set bool
}

func (c *Fake) sealed() {}

// Set puts the wall clock at t, forwards or backwards, without time passing.
func (c *Fake) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = t
}

// AutoAdvance makes Sleep move the clock by the time asked for instead of waiting for someone else to move it.
func (c *Fake) AutoAdvance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skips = true
}

// Advance lets d pass: both clocks move, and the timers that fall due are called, each in its own goroutine.
func (c *Fake) Advance(d time.Duration) {
	c.mu.Lock()
	c.init()
	c.wall = c.wall.Add(d)
	c.mono += d
	var due []*fakeTimer
	for _, t := range c.timers {
		if t.at <= c.mono {
			t.set = false
			due = append(due, t)
		}
	}
	c.timers = slices.DeleteFunc(c.timers, func(t *fakeTimer) bool { return !t.set })
	slices.SortStableFunc(due, func(a, b *fakeTimer) int { return cmp.Compare(a.at, b.at) })
	c.mu.Unlock()
	for _, t := range due {
		go t.f()
	}
}

func (c *Fake) init() {
	if c.wall.IsZero() {
		c.wall = time.Now().Truncate(time.Millisecond)
	}
}

// Now is where the wall clock was put.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init()
	return c.wall
}

// Mono is how far the clock was moved by Advance.
func (c *Fake) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// AfterFunc calls f once Advance has moved the clock by d.
func (c *Fake) AfterFunc(d time.Duration, f func()) Timer {
	t := &fakeTimer{c: c, f: f}
	t.Reset(d)
	return t
}

// Sleep waits until Advance has moved the clock by d, or, after AutoAdvance, moves it itself.
func (c *Fake) Sleep(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	skips := c.skips
	c.mu.Unlock()
	if skips {
		c.Advance(d)
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

func (t *fakeTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.set
	t.unset()
	return was
}

func (t *fakeTimer) unset() {
	t.set = false
	t.c.timers = slices.DeleteFunc(t.c.timers, func(o *fakeTimer) bool { return o == t })
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.set
	switch t.at = t.c.mono + d; {
	case d <= 0: // due at once, as on the machine's clock
		t.unset()
		go t.f()
	case !was:
		t.set = true
		t.c.timers = append(t.c.timers, t)
	}
	return was
}

package clock

import (
	"context"
	"time"
)

// WithTimeout is context.WithTimeout on this clock.
func (system) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// WithTimeout ends the context once Advance has moved the clock by d, with context.DeadlineExceeded as its error.
func (c *Fake) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	deadline := c.Now().Add(d)
	if parent, ok := ctx.Deadline(); ok && parent.Before(deadline) {
		deadline = parent
	}
	return &fakeTimeout{inner, deadline}, func() { t.Stop(); cancel(context.Canceled) }
}

type fakeTimeout struct {
	context.Context
	deadline time.Time
}

func (c *fakeTimeout) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *fakeTimeout) Err() error {
	if c.Context.Err() != nil && context.Cause(c.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// Option configures a [Relay].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct {
	logger      *zap.Logger
	clock       clock.Clock
	lease       time.Duration
	batch       int
	workers     int
	maxRefusals int
	pollMin     time.Duration
	pollMax     time.Duration
	backoffMin  time.Duration
	backoffMax  time.Duration
	grace       time.Duration
	inline      time.Duration
}

func defaults() config {
	return config{
		logger:      zap.NewNop(),
		clock:       clock.System(),
		lease:       30 * time.Second,
		batch:       100,
		workers:     4,
		maxRefusals: 5,
		pollMin:     100 * time.Millisecond,
		pollMax:     5 * time.Second,
		backoffMin:  200 * time.Millisecond,
		backoffMax:  30 * time.Second,
		grace:       10 * time.Second,
		inline:      5 * time.Second,
	}
}

// WithLogger sets the logger. Nothing is logged by default. docs/outbox.md lists the events. No event carries a body or an
// attribute; message IDs, which contain the run's key, and the broker's own words are logged.
func WithLogger(l *zap.Logger) Option { return optionFunc(func(c *config) { c.logger = l }) }

// WithClock sets the clock; a test's fake one, for instance.
func WithClock(clk clock.Clock) Option { return optionFunc(func(c *config) { c.clock = clk }) }

// WithLease sets for how long a run's messages are claimed at a time. After a relay has died, its messages wait that
// long. Default 30 s, at least 10 ms. It should be several times as long as the broker takes to answer a call.
func WithLease(d time.Duration) Option { return optionFunc(func(c *config) { c.lease = d }) }

// WithBatch sets how many messages are claimed at a time, and given to one Publish call. Default 100.
func WithBatch(n int) Option { return optionFunc(func(c *config) { c.batch = n }) }

// WithWorkers sets how many Publish calls may be under way at the same time. Default 4.
func WithWorkers(n int) Option { return optionFunc(func(c *config) { c.workers = n }) }

// WithMaxRefusals sets how many times a message may be refused before it is parked, as counted by this relay since it
// was made. Default 5; 1 parks at the first refusal.
func WithMaxRefusals(n int) Option { return optionFunc(func(c *config) { c.maxRefusals = n }) }

// WithPoll sets how long Run waits before it looks for due messages again: least after it has found some, twice as long
// each time it finds none, at most most. Default 100 ms and 5 s. A look costs a query on the store.
func WithPoll(least, most time.Duration) Option {
	return optionFunc(func(c *config) { c.pollMin, c.pollMax = least, most })
}

// WithBackoff sets the wait after an outage, a refusal or another failure: least at first, then longer, at most most,
// with jitter. Default 200 ms and 30 s.
func WithBackoff(least, most time.Duration) Option {
	return optionFunc(func(c *config) { c.backoffMin, c.backoffMax = least, most })
}

// WithGrace sets how long Run goes on with what it has in hand once its context has ended. Default 10 s.
func WithGrace(d time.Duration) Option { return optionFunc(func(c *config) { c.grace = d }) }

// WithInlineTimeout sets how long Deliver may publish, so that a broker that does not answer keeps no caller waiting for a
// whole lease. Default 5 s.
func WithInlineTimeout(d time.Duration) Option { return optionFunc(func(c *config) { c.inline = d }) }

func (c *config) check() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.logger == nil, "the logger is nil")
	bad(c.clock == nil, "the clock is nil")
	bad(c.lease < 10*time.Millisecond, "a lease of %v: at least 10ms are needed", c.lease)
	bad(c.batch < 1, "a batch of %d messages", c.batch)
	bad(c.workers < 1, "%d workers", c.workers)
	bad(c.maxRefusals < 1, "%d refusals before a message is parked", c.maxRefusals)
	bad(c.pollMin <= 0 || c.pollMax < c.pollMin, "polling every %v to %v", c.pollMin, c.pollMax)
	bad(c.backoffMin <= 0 || c.backoffMax < c.backoffMin, "backing off for %v to %v", c.backoffMin, c.backoffMax)
	bad(c.grace < 0, "a grace of %v", c.grace)
	bad(c.inline <= 0, "an inline timeout of %v", c.inline)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: the relay's options: %w", err)
	}
	return nil
}

func (c *config) newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.backoffMin),
		backoff.WithMaxInterval(c.backoffMax),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0.25),
		backoff.WithMaxElapsedTime(0),
	)
}

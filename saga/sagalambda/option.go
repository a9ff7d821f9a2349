package sagalambda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// DefaultConcurrency is how many records of one event run at once when [WithConcurrency] says nothing.
const DefaultConcurrency = 10

// Option is an option of this package's handlers. Only this package makes them. An option that can't work makes a handler
// that fails every event, which is then delivered again; what is wrong is logged at once.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	log         *zap.Logger
	concurrency int
	margin      time.Duration
	failed      Disposition
	blocked     Disposition
	malformed   Disposition
	wholeEvent  bool
	broken      error
}

func newConfig(opts []Option) *config {
	c := &config{log: zap.NewNop(), concurrency: DefaultConcurrency, margin: saga.DefaultMargin,
		failed: Acknowledge, blocked: Acknowledge, malformed: Return}
	for _, o := range opts {
		if o != nil {
			c.breaks(o.apply(c))
		}
	}
	return c
}

func (c *config) breaks(err error) { c.broken = errors.Join(c.broken, err) }

// check tells and remembers what is wrong, once everything has been read.
func (c *config) check(runner, request bool) {
	if !runner {
		c.breaks(errors.New("sagalambda: the runner is nil"))
	}
	if !request {
		c.breaks(errors.New("sagalambda: the function that makes the key and the input is nil"))
	}
	if c.broken != nil {
		c.log.Error("lambda_handler_misconfigured", zap.Error(c.broken))
	}
}

// WithLogger logs what became of records: at warn, those that are returned or that failed for good; at error, those that
// are blocked or of which no run could be made. Records are named by their ID and key; their content is never logged.
func WithLogger(log *zap.Logger) Option {
	return option(func(c *config) error {
		if log == nil {
			return errors.New("sagalambda: WithLogger(nil)")
		}
		c.log = log
		return nil
	})
}

// WithConcurrency sets how many records of one event run at once; default [DefaultConcurrency]. Records with one key, or
// of one group or partition key where that has an order, never do.
func WithConcurrency(n int) Option {
	return option(func(c *config) error {
		if n < 1 {
			return fmt.Errorf("sagalambda: WithConcurrency(%d): at least 1", n)
		}
		c.concurrency = n
		return nil
	})
}

// WithMargin is the orchestrator's margin (saga.WithMargin), if it has another one than [saga.DefaultMargin]: a record for
// which less time is left isn't started, and the lease ends no later than this after the function's timeout.
func WithMargin(d time.Duration) Option {
	return option(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("sagalambda: WithMargin(%v): must not be negative", d)
		}
		c.margin = d
		return nil
	})
}

// Record is a record of an event, or an event, and what came of it. Keyed literals only.
type Record struct {
	_ struct{}

	// ID by which the event source knows it; empty for an event that has none.
	ID string
	// Event is the record as the handler got it, such as an events.SQSMessage.
	Event any
	// Key of its run; empty when none could be made.
	Key saga.Key
	// Err is what came of it, usually a *saga.Error.
	Err error
}

// Disposition decides about a record that will not succeed: nil acknowledges it, and an error has it delivered again,
// until the event source's own limit moves it to a dead-letter queue. It may send the record on. It is called
// concurrently for records of different keys, and may be called again for the same record.
type Disposition func(ctx context.Context, r Record) error

// Acknowledge is the [Disposition] that acknowledges.
func Acknowledge(context.Context, Record) error { return nil }

// Return is the [Disposition] that has the record delivered again.
func Return(_ context.Context, r Record) error { return r.Err }

// WithFailed decides about records whose run has failed for good (saga.ErrFailed); default [Acknowledge].
func WithFailed(d Disposition) Option {
	return dispose("WithFailed", d, func(c *config) { c.failed = d })
}

// WithBlocked decides about records whose run needs an operator (saga.ErrBlocked); default [Acknowledge]: the
// orchestrator's listener was told, and recovery goes on once the operator has decided.
func WithBlocked(d Disposition) Option {
	return dispose("WithBlocked", d, func(c *config) { c.blocked = d })
}

// WithMalformed decides about records of which no key and input can be made; default [Return], so that they end in the
// dead-letter queue.
func WithMalformed(d Disposition) Option {
	return dispose("WithMalformed", d, func(c *config) { c.malformed = d })
}

func dispose(name string, d Disposition, set func(*config)) Option {
	return option(func(c *config) error {
		if d == nil {
			return fmt.Errorf("sagalambda: %s(nil)", name)
		}
		set(c)
		return nil
	})
}

// WithWholeEvent makes [SQS], [Kinesis] and [DynamoDBStream] fail the whole event when a record is to be delivered again:
// for an event source mapping without ReportBatchItemFailures, which takes a handler's nil for the success of every record.
func WithWholeEvent() Option {
	return option(func(c *config) error { c.wholeEvent = true; return nil })
}

package sagalambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// Drainer sends what is due, once. [outbox.Relay] is one.
type Drainer interface {
	Drain(ctx context.Context) error
}

var _ Drainer = (*outbox.Relay)(nil)

// Swept is what a scheduled invocation has done.
type Swept struct {
	// Recovered counts the runs that were taken up.
	Recovered saga.Recovered `json:"recovered"`
	// Drained: all messages that were due have been sent, as far as this relay could.
	Drained bool `json:"drained"`
}

// Scheduled handles the ticks of a schedule, whatever their event is: it recovers the runs that nobody is at work on
// (saga.Recover), and then sends the messages that are due. relay may be nil. Recovery has at most three fifths of the time
// that is left, so that messages are sent also when there is a lot to recover; what is not done by then is done by the next
// tick. Two at once do no harm.
//
// An error means that a store could not be listed or that messages could not be sent, so that the function's error alarm
// sees it. That recovery has used up its time is none.
func Scheduled(relay Drainer, orchestrators []saga.Recoverable, opts ...Option) func(context.Context, json.RawMessage) (Swept, error) {
	c := newConfig(opts)
	if relay != nil && absent.Is(relay) {
		c.breaks(fmt.Errorf("sagalambda: the relay is a nil %T; where there is none, give nil itself", relay))
	}
	for i, o := range orchestrators {
		if absent.Is(o) {
			c.breaks(fmt.Errorf("sagalambda: orchestrator %d of %d is nil", i+1, len(orchestrators)))
		}
	}
	c.check(true, true)
	return func(ctx context.Context, _ json.RawMessage) (swept Swept, err error) {
		if c.broken != nil {
			return swept, c.broken
		}
		ctx, cancel := share(ctx, 1)
		defer cancel()
		swept.Recovered, err = c.recovered(ctx, orchestrators)
		if relay == nil {
			swept.Drained = true
		} else {
			drained := called("the relay", func() error { return relay.Drain(ctx) })
			c.told("sweep_panic", drained)
			swept.Drained = drained == nil
			err = errors.Join(err, drained)
		}
		c.log.Info("sweep_done", zap.Any("recovered", swept.Recovered), zap.Bool("drained", swept.Drained), zap.Error(err))
		return swept, err
	}
}

// recovered recovers all at once within their share of the time, whose end is no error. What any of them met besides is
// one, whatever became of the others.
func (c *config) recovered(ctx context.Context, orchestrators []saga.Recoverable) (sum saga.Recovered, err error) {
	within, cancel := share(ctx, 0.6)
	defer cancel()
	sums, errs := make([]saga.Recovered, len(orchestrators)), make([]error, len(orchestrators))
	var all sync.WaitGroup
	for i, o := range orchestrators {
		all.Go(func() {
			err := called("the recovery", func() (err error) {
				sums[i], err = saga.Recover(within, o)
				return err
			})
			c.told("sweep_panic", err)
			// A network's timeout is a context.DeadlineExceeded too, and no end of this share when it comes before that.
			if within.Err() == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	for _, one := range sums {
		sum.Completed += one.Completed
		sum.Failed += one.Failed
		sum.Interrupted += one.Interrupted
		sum.Blocked += one.Blocked
		sum.Lost += one.Lost
	}
	return sum, errors.Join(errs...)
}

// share is the context with this part of its time, less what is kept free for the answer.
func share(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, min(time.Duration(part*float64(left)), left-keptFree(left)))
}

package sagalambda

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

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
// sees it.
func Scheduled(relay Drainer, orchestrators []saga.Recoverable, opts ...Option) func(context.Context, json.RawMessage) (Swept, error) {
	c := newConfig(opts)
	c.check(true, true)
	return func(ctx context.Context, _ json.RawMessage) (swept Swept, err error) {
		if c.broken != nil {
			return swept, c.broken
		}
		ctx, cancel := share(ctx, 1)
		defer cancel()
		swept.Recovered, err = recovered(ctx, orchestrators)
		if relay == nil {
			swept.Drained = true
		} else {
			drained := relay.Drain(ctx)
			swept.Drained = drained == nil
			err = errors.Join(err, drained)
		}
		c.log.Info("sweep_done", zap.Any("recovered", swept.Recovered), zap.Bool("drained", swept.Drained), zap.Error(err))
		return swept, err
	}
}

// recovered recovers within its share of the time, whose end is no error.
func recovered(ctx context.Context, orchestrators []saga.Recoverable) (saga.Recovered, error) {
	within, cancel := share(ctx, 0.6)
	defer cancel()
	sum, err := saga.Recover(within, orchestrators...)
	if within.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return sum, err
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

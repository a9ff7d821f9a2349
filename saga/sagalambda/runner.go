package sagalambda

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// reserve is the time kept free before the function's timeout in which the handler answers. In a short one it is a
// tenth.
const reserve = 200 * time.Millisecond

var errNoTime = errors.New("too little time is left before the function's timeout; nothing was started")

// Runner makes the runs of a runner fit into an invocation: they end before the function's timeout, none is begun that
// can't get anywhere, the lease is never longer than the time that is left plus the margin, and a key that is the
// invocation's own request ID is refused with saga.ErrInvalidKey. All handlers of this package do so by themselves; give
// it to sagahttp.Handler. Without a deadline in the context it changes nothing but the key's check. The options that count
// are [WithMargin] and [WithLogger].
func Runner[In, Out any](runner saga.Runner[In, Out], opts ...Option) saga.Runner[In, Out] {
	c := newConfig(opts)
	c.check(!absent.Is(runner), true)
	return &bounded[In, Out]{c, runner}
}

type bounded[In, Out any] struct {
	c      *config
	runner saga.Runner[In, Out]
}

// Run runs the operation within the invocation's time.
func (b *bounded[In, Out]) Run(ctx context.Context, key saga.Key, in In, opts ...saga.RunOption) (Out, error) {
	var none Out
	if b.c.broken != nil {
		return none, b.c.broken
	}
	if lc, ok := lambdacontext.FromContext(ctx); ok && lc != nil && lc.AwsRequestID != "" && key.ID == lc.AwsRequestID {
		return none, &saga.Error{Kind: saga.ErrInvalidKey, Key: key, Err: errors.New("it is the request ID of this invocation, which another delivery of the same event would not have; take a business key")}
	}
	end, ok := ctx.Deadline()
	if !ok {
		return b.runner.Run(ctx, key, in, opts...)
	}
	left := time.Until(end)
	if left-keptFree(left) <= b.c.margin {
		return none, &saga.Error{Kind: saga.ErrInterrupted, Key: key, Err: errNoTime}
	}
	within, cancel := context.WithDeadline(ctx, end.Add(-keptFree(left)))
	defer cancel()
	return b.runner.Run(within, key, in, append([]saga.RunOption{saga.LeaseAtMost(left + b.c.margin)}, opts...)...)
}

func keptFree(left time.Duration) time.Duration { return min(reserve, max(0, left/10)) }

// guarded calls the runner, whatever it does.
func (b *bounded[In, Out]) guarded(ctx context.Context, key saga.Key, in In) (out Out, err error) {
	err = called("the runner", func() (err error) {
		out, err = b.Run(ctx, key, in)
		return err
	})
	b.c.told("record_panic", err, zap.Stringer("key", key))
	return out, err
}

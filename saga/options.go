package saga

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/tame"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const (
	// DefaultLease is a holder's lease when WithLease says nothing.
	DefaultLease = 30 * time.Second
	// DefaultMargin is the time before the context's deadline in which no step runs, so that the closing write still fits.
	// A function's context ends a fifth of it, at most 100 ms, earlier.
	DefaultMargin = 500 * time.Millisecond

	// DefaultRecoverers is how many runs a recovery has in hand at once when WithRecoverers says nothing.
	DefaultRecoverers = 8

	shortestLease  = 10 * time.Millisecond
	mostRecoverers = 1000
)

// Option is an option of [New]. Only this package makes them.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	log         *zap.Logger
	listener    Listener
	interceptor Interceptor
	lease       time.Duration
	margin      time.Duration
	clk         clock.Clock
	errs        map[string]error
	retry       steps.RetryPolicy
	relay       Relay
	recoverers  int
}

// Clock is the time that an orchestrator sees. It is sealed: SystemClock, and for tests sagatest.Clock.
type Clock = clock.Clock

// SystemClock is the machine's clock, the default.
func SystemClock() Clock { return clock.System() }

// WithLogger logs runs: at info, "business_operation_executed" for a step that ran and "job_skipped" for a replay; at
// warn, interruptions and lost leases; at error, failed and blocked runs and panics. Payloads are never logged.
func WithLogger(log *zap.Logger) Option {
	return option(func(c *config) error {
		if log == nil {
			return fmt.Errorf("WithLogger(nil)")
		}
		c.log = log
		return nil
	})
}

// WithListener tells l what happens.
func WithListener(l Listener) Option {
	return option(func(c *config) error { c.listener = l; return nil })
}

// WithInterceptor puts f around every call of a step, a compensation or a probe. Several are nested, the first outermost.
func WithInterceptor(f Interceptor) Option {
	return option(func(c *config) error {
		if f == nil {
			return fmt.Errorf("WithInterceptor(nil)")
		}
		outer := c.interceptor
		if outer == nil {
			c.interceptor = f
			return nil
		}
		c.interceptor = func(ctx context.Context, call Call, next func(context.Context) error) error {
			return outer(ctx, call, func(ctx context.Context) error { return f(ctx, call, next) })
		}
		return nil
	})
}

// WithLease sets how long a holder alone may try without renewing its lease: how long others wait after a crash. It is
// renewed by every write, and by a heartbeat during steps longer than a third of it. At least 10 ms.
func WithLease(d time.Duration) Option {
	return option(func(c *config) error {
		if d < shortestLease {
			return fmt.Errorf("WithLease(%v): at least 10ms", d)
		}
		c.lease = d
		return nil
	})
}

// WithMargin sets the time kept free before the context's deadline; see [DefaultMargin].
func WithMargin(d time.Duration) Option {
	return option(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("WithMargin(%v): must not be negative", d)
		}
		c.margin = d
		return nil
	})
}

// WithClock sets the clock. Give the store the same one, so that both agree on what has expired.
func WithClock(clk Clock) Option {
	return option(func(c *config) error {
		if clk == nil {
			return fmt.Errorf("WithClock(nil)")
		}
		c.clk = clk
		return nil
	})
}

// WithErrors names the errors behind the codes of steps.WithCode, so that errors.Is holds on a replay and in another
// process too.
func WithErrors(byCode map[string]error) Option {
	return option(func(c *config) error {
		for code, err := range byCode {
			if !tame.Is(err) {
				return fmt.Errorf("WithErrors: the error for the code %q, of type %T, can't be looked at: its methods panic, or it says that it is every error", code, err)
			}
		}
		if c.errs == nil {
			c.errs = map[string]error{}
		}
		maps.Copy(c.errs, byCode)
		return nil
	})
}

// WithRetry sets the default retry policy of steps and compensations.
func WithRetry(p steps.RetryPolicy) Option {
	return option(func(c *config) error {
		if err := p.Check(); err != nil {
			return fmt.Errorf("WithRetry: %w", err)
		}
		c.retry = p
		return nil
	})
}

// WithRecoverers sets how many runs [Recover] and [RecoverLoop] have in hand at once, 1 to 1,000. With 1 they are taken up one
// after the other, in the store's order.
func WithRecoverers(n int) Option {
	return option(func(c *config) error {
		if n < 1 || n > mostRecoverers {
			return fmt.Errorf("WithRecoverers(%d): not between 1 and %d", n, mostRecoverers)
		}
		c.recoverers = n
		return nil
	})
}

// RunOption is an option of one call of [Orchestrator.Run]. Only this package makes them.
type RunOption interface{ applyRun(*runConfig) }

type runOption func(*runConfig)

func (o runOption) applyRun(c *runConfig) { o(c) }

type runConfig struct {
	wait        time.Duration
	report      *RunInfo
	leaseAtMost time.Duration // 0: no bound
}

// Wait waits up to d for the end of another holder's work on the key; if that is interrupted, the call goes on itself.
func Wait(d time.Duration) RunOption { return runOption(func(c *runConfig) { c.wait = d }) }

// Report fills in info before Run returns.
func Report(info *RunInfo) RunOption { return runOption(func(c *runConfig) { c.report = info }) }

// LeaseAtMost makes this call's lease d when [WithLease] says more: for a process that will be killed by then, as a Lambda
// function is at its timeout, so that others needn't wait longer than they must. It is renewed as usual; less than 10 ms
// counts as 10 ms.
func LeaseAtMost(d time.Duration) RunOption {
	return runOption(func(c *runConfig) { c.leaseAtMost = max(d, shortestLease) })
}

package sagahttp

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

const (
	// DefaultBodyLimit is the most bytes of a request's content when [WithBodyLimit] says nothing.
	DefaultBodyLimit = 1 << 20
	// DefaultMaxWait is the longest wait that a client's "Prefer: wait" gets when [WithMaxWait] says nothing.
	DefaultMaxWait = 10 * time.Second
)

// Option is an option of [Handler] and [StatusHandler]. Only this package makes them. An option that can't work makes a
// handler that answers every request with 500; what is wrong is logged, at once and with every request, if [WithLogger] is
// given.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	success       int
	failures      map[string]Failure
	messages      bool
	types         string
	bodyLimit     int64
	unknownFields bool
	maxWait       time.Duration
	timeout       time.Duration
	detached      bool
	retryAfter    time.Duration
	location      func(saga.Key) string
	statusLink    func(saga.Key) string
	steps         bool
	log           *zap.Logger
	broken        error
}

func newConfig(opts []Option) *config {
	c := &config{success: 201, types: DefaultTypes, bodyLimit: DefaultBodyLimit, maxWait: DefaultMaxWait, log: zap.NewNop()}
	for _, o := range opts {
		if o == nil {
			continue
		}
		c.breaks(o.apply(c))
	}
	if c.detached && c.timeout <= 0 {
		c.breaks(errors.New("WithDetached needs WithTimeout: without it nothing would end a run that hangs"))
	}
	return c
}

func (c *config) breaks(err error) { c.broken = errors.Join(c.broken, err) }

// tell logs what is wrong with the options, once they have all been read.
func (c *config) tell() {
	if c.broken != nil {
		c.log.Error("http_handler_misconfigured", zap.Error(c.broken))
	}
}

// WithSuccess sets the status of a completed run, 200 to 299; default 201. It is the same on a replay. With 204 and 205
// the result is not sent.
func WithSuccess(status int) Option {
	return option(func(c *config) error {
		if status < 200 || status > 299 {
			return fmt.Errorf("sagahttp: WithSuccess(%d): want 200 to 299", status)
		}
		c.success = status
		return nil
	})
}

// Failure is how a permanent failure is answered. Keyed literals only.
type Failure struct {
	_ struct{}

	// Status of the answer, 400 to 599; 0: 422. The client is told that the answer is final by Idempotency-Replayed alone,
	// so a status that asks for another try, such as 409 or 503, costs it one.
	Status int
	// Type is the problem's type, a URI; empty: the type "failed" of this package.
	Type string
	// Title is the problem's title, for the client to read; empty: a general one.
	Title string
}

// WithFailure sets how a run is answered that has failed with this code (steps.WithCode, or one of saga's Code
// constants). It may be given several times. The code itself is always shown to the client, as the member "code".
func WithFailure(code string, as Failure) Option {
	return option(func(c *config) error {
		if as.Status == 0 {
			as.Status = kindFailed.status
		}
		if code == "" || as.Status < 400 || as.Status > 599 {
			return fmt.Errorf("sagahttp: WithFailure(%q) with status %d: want a code and 400 to 599", code, as.Status)
		}
		if c.failures == nil {
			c.failures = map[string]Failure{}
		}
		c.failures[code] = as
		return nil
	})
}

// WithFailures sets the status for each code; see [WithFailure].
func WithFailures(statusByCode map[string]int) Option {
	given := maps.Clone(statusByCode)
	return option(func(c *config) error {
		var errs []error
		for code, status := range given {
			errs = append(errs, WithFailure(code, Failure{Status: status}).apply(c))
		}
		return errors.Join(errs...)
	})
}

// WithMessages shows a permanent failure's stored message to the client, as the problem's detail. Use it only when all
// steps' errors are written for clients.
func WithMessages() Option {
	return option(func(c *config) error { c.messages = true; return nil })
}

// WithTypes sets the base of the problems' types, such as "https://api.example.com/problems/", to which this package
// appends a word such as "in-progress"; default [DefaultTypes].
func WithTypes(base string) Option {
	return option(func(c *config) error {
		if _, err := url.Parse(base); err != nil || base == "" {
			return errors.New("sagahttp: WithTypes: want the beginning of a URI")
		}
		c.types = base
		return nil
	})
}

// WithBodyLimit sets the most bytes of a request's content; default [DefaultBodyLimit]. More is answered with 413.
func WithBodyLimit(n int64) Option {
	return option(func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("sagahttp: WithBodyLimit(%d): must be positive", n)
		}
		c.bodyLimit = n
		return nil
	})
}

// WithUnknownFields lets [JSON] pass over members that the input has no field for. Otherwise they are refused with 400:
// they would be no part of what makes two requests the same.
func WithUnknownFields() Option {
	return option(func(c *config) error { c.unknownFields = true; return nil })
}

// WithMaxWait bounds how long a request with "Prefer: wait" (RFC 7240) waits for another one that works on its key;
// default [DefaultMaxWait]; 0: not at all.
func WithMaxWait(d time.Duration) Option {
	return option(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("sagahttp: WithMaxWait(%v): must not be negative", d)
		}
		c.maxWait = d
		return nil
	})
}

// WithTimeout bounds the time of a request's run, so that the client is told that it was interrupted before a proxy
// loses patience. The run stops the orchestrator's margin (saga.WithMargin) earlier. Default: no bound but the client's
// connection.
func WithTimeout(d time.Duration) Option {
	return option(func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("sagahttp: WithTimeout(%v): must be positive", d)
		}
		c.timeout = d
		return nil
	})
}

// WithDetached lets a run go on when its client disconnects, for the time of [WithTimeout], which it needs. It goes on
// within the request's handler, so that http.Server.Shutdown waits for it. Without this option a run whose client has
// gone is interrupted, and the same key goes on.
func WithDetached() Option {
	return option(func(c *config) error { c.detached = true; return nil })
}

// WithRetryAfter bounds what the client of a run in progress reads in Retry-After. Unbounded it is the time that is left
// of the holder's lease, after which another may take the run over if the holder has died; a holder that lives is
// usually done much earlier.
func WithRetryAfter(most time.Duration) Option {
	return option(func(c *config) error {
		if most <= 0 {
			return fmt.Errorf("sagahttp: WithRetryAfter(%v): must be positive", most)
		}
		c.retryAfter = most
		return nil
	})
}

// WithLocation puts the URL of what a completed run has made into the answer's Location. It must be a pure function of
// the key, so that a replay says the same.
func WithLocation(of func(saga.Key) string) Option {
	return option(func(c *config) error { c.location = of; return nil })
}

// WithStatusLink puts a link to the run's status ([StatusHandler]) into every answer that belongs to a run, as Link with
// the relation "status" (RFC 8631).
func WithStatusLink(of func(saga.Key) string) Option {
	return option(func(c *config) error { c.statusLink = of; return nil })
}

// WithSteps lets [StatusHandler] show the steps by name and status.
func WithSteps() Option {
	return option(func(c *config) error { c.steps = true; return nil })
}

// WithLogger logs answers of 500 and above with their cause: at error, and at warn those that ask for another try. What
// is answered with 4xx is logged at debug. The field "instance" is what the client has read in the problem.
func WithLogger(log *zap.Logger) Option {
	return option(func(c *config) error {
		if log == nil {
			return errors.New("sagahttp: WithLogger(nil)")
		}
		c.log = log
		return nil
	})
}

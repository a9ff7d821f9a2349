package sagahttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/httpretry"
)

// The defaults of [RetryTransport].
const (
	DefaultAttempts      = 10
	DefaultFirstWait     = 200 * time.Millisecond
	DefaultLongestWait   = time.Minute
	DefaultKeyRetention  = 24 * time.Hour
	retentionMarginParts = 10 // a tenth of the retention is left for the way to the server and for clocks that differ
)

// ErrKeyExpired: the key of [KeyContextSince] is so old that the server may have forgotten it, and would take a
// repetition for a new request. Nothing was sent. Find out in another way what came of the request.
var ErrKeyExpired = errors.New("the server may have forgotten the idempotency key")

var _ http.RoundTripper = (*RetryTransport)(nil)

// RetryTransport is an [http.RoundTripper] that repeats a request until it has its answer, always with the same
// Idempotency-Key, so that the server does once what was asked for once:
//
//	client := &http.Client{Transport: &sagahttp.RetryTransport{}}
//
// The key is that of the request's Idempotency-Key field, or of its context ([KeyContext]), or a random UUID made for
// this request. GET, HEAD and the other safe methods get none and are repeated all the same. With a nil value in the
// field, request.Header["Idempotency-Key"] = nil, an unsafe request is sent once and without a key.
//
// Repeated is a request that got no answer, or 408, 409, 425, 429, 502, 503 or 504; never another status, 422 above all,
// and never an answer marked "Idempotency-Replayed: true", which is final. An answer whose content breaks off is an error
// where the content is read; the caller can send the request again, with a key of its own. It waits between attempts, longer each time,
// and never shorter than Retry-After says. It gives up, and returns the last answer or error as it is, after Attempts,
// when the wait would be longer than LongestWait or than the request's context has time, and before the server's
// Retention can end. A request with a body that can't be read again (no GetBody; [http.NewRequest] sets it for buffers
// and strings) is sent once.
//
// The zero value is ready to use. It may be used concurrently, as far as Base may. Keyed literals only.
type RetryTransport struct {
	_ struct{}

	// Base makes the requests. Nil: [http.DefaultTransport].
	Base http.RoundTripper
	// Attempts is the most, the first included. 0: [DefaultAttempts].
	Attempts int
	// FirstWait is about the wait before the second attempt; each next is up to twice as long. 0: [DefaultFirstWait].
	FirstWait time.Duration
	// LongestWait between two attempts. When a server asks for a longer one, its answer is returned. 0: [DefaultLongestWait].
	LongestWait time.Duration
	// Retention is how long the server remembers a key, counted from the first request with it. 0: [DefaultKeyRetention];
	// negative: for ever.
	Retention time.Duration
	// Quoted sends the key as a quoted string, as the IETF draft demands. Most servers take it literally, quotes included,
	// so the default is the bare form.
	Quoted bool

	clk clock.Clock // nil: the system's
}

// RoundTrip sends the request, and sends it again. The request itself is not changed.
func (t *RetryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	call, err := t.begin(req)
	if err != nil {
		err = fmt.Errorf("sagahttp: %s %s: %w", req.Method, req.URL.Host, err)
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close()) // a RoundTripper closes the body, also on errors
		}
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		resp, err := t.base().RoundTrip(call.next)
		if !call.again(resp, err) || attempt >= orDefault(t.Attempts, DefaultAttempts) {
			return resp, err
		}
		wait, ok := call.wait(resp, attempt)
		if !ok || !call.rewind() {
			return resp, err
		}
		discard(resp)
		if err := call.clk.Sleep(req.Context(), wait); err != nil {
			call.close()
			return nil, err
		}
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections] and passed on to Base.
func (t *RetryTransport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *RetryTransport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func orDefault[T int | time.Duration](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

// call is one logical request.
type call struct {
	t     *RetryTransport
	clk   clock.Clock
	req   *http.Request
	next  *http.Request // of the next attempt
	keyed bool
	age   time.Duration // of the key at the start
	wall  time.Time     // the start by either clock: the monotonic one stands still while the machine sleeps
	mono  time.Duration
}

// begin prepares the first attempt.
func (t *RetryTransport) begin(req *http.Request) (*call, error) {
	c := &call{t: t, clk: t.clk, req: req}
	if c.clk == nil {
		c.clk = clock.System()
	}
	c.wall, c.mono = c.clk.Now(), c.clk.Mono()
	c.next = req
	if isSafe(req.Method) {
		return c, nil
	}
	own := ownKey(req.Header)
	if own == withoutKey {
		return c, nil
	}
	key, given := keyOf(req)
	if !given {
		key.id = newUUID()
	}
	if key.first.IsZero() {
		key.first = c.wall
	}
	c.keyed, c.age = true, max(0, c.wall.Round(0).Sub(key.first.Round(0)))
	if !c.inTime(0) {
		return nil, ErrKeyExpired
	}
	c.next = req.Clone(context.WithValue(req.Context(), contextKey{}, key))
	if own == withKey {
		return c, nil
	}
	value, err := sendable(key.id, t.Quoted)
	if err != nil {
		return nil, fmt.Errorf("the idempotency key can't be sent: %w", err)
	}
	setKey(c.next, value)
	return c, nil
}

func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// again tells whether the same request again may get a better answer, or an answer at all.
func (c *call) again(resp *http.Response, err error) bool {
	if !c.keyed && !isSafe(c.req.Method) {
		return false
	}
	if err != nil {
		var untrusted *tls.CertificateVerificationError
		return c.req.Context().Err() == nil && !errors.As(err, &untrusted)
	}
	if resp.Header.Get(replayedHeader) == "true" {
		return false
	}
	switch resp.StatusCode {
	case http.StatusConflict: // the request is being worked on; without a key it is another conflict
		return c.keyed
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// wait is how long to wait before the next attempt; false: longer than is good.
func (c *call) wait(resp *http.Response, attempt int) (time.Duration, bool) {
	longest := orDefault(c.t.LongestWait, DefaultLongestWait)
	wait := orDefault(c.t.FirstWait, DefaultFirstWait)
	for range attempt - 1 {
		wait = min(2*wait, longest)
	}
	wait -= time.Duration(rand.Int64N(max(1, int64(wait/2)))) // clients that failed together don't come back together
	if resp != nil {
		if asked, ok := httpretry.FromHeader(resp.Header, c.clk.Now()); ok {
			wait = max(wait, asked)
		}
	}
	if deadline, ok := c.req.Context().Deadline(); ok && c.clk.Now().Add(wait).After(deadline) {
		return 0, false
	}
	return wait, wait <= longest && (!c.keyed || c.inTime(wait))
}

// inTime tells whether the server still knows the key after this wait.
func (c *call) inTime(wait time.Duration) bool {
	keep := orDefault(c.t.Retention, DefaultKeyRetention)
	if keep < 0 {
		return true
	}
	passed := max(c.clk.Mono()-c.mono, c.clk.Now().Round(0).Sub(c.wall.Round(0)))
	return c.age+passed+wait < keep-keep/retentionMarginParts
}

// rewind prepares the next attempt; false: the body can't be read again.
func (c *call) rewind() bool {
	next := c.next.Clone(c.next.Context())
	if c.req.Body != nil && c.req.Body != http.NoBody {
		if c.req.GetBody == nil {
			return false
		}
		body, err := c.req.GetBody()
		if err != nil {
			return false
		}
		next.Body = body
	}
	c.next = next
	return true
}

// close closes the body of an attempt that is not made.
func (c *call) close() {
	if c.next.Body != nil {
		_ = c.next.Body.Close() // nothing was read from it
	}
}

// discard reads a little of an answer that nobody wants, so that its connection can be used again.
func discard(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	const enough = 64 << 10
	_, _ = io.CopyN(io.Discard, resp.Body, enough)
	_ = resp.Body.Close()
}

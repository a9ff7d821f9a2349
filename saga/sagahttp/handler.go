package sagahttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Handler serves a saga: a request is a run, and the same request again gets the same answer.
//
// request makes the run's key and input of the HTTP request, and may use [IdempotencyKey] and [JSON] for it; [Request]
// is the usual one. It must not start anything: its errors are answered before the run starts, so that nothing is stored
// and the same key may be used again. A [Refusal] (also by [Status]) says its own status, everything else is 400, and a
// panic is 500.
//
// A completed run is answered with 201 ([WithSuccess]) and the JSON of its result, and every error with a problem
// document ([Problem]); docs/http.md lists them. An answer that an ended run gives again has "Idempotency-Replayed: true".
// GET, HEAD and the other safe methods are refused with 405.
//
// When the client disconnects the run is interrupted; see [WithDetached]. The handler may be called concurrently, as far
// as request may.
func Handler[In, Out any](runner saga.Runner[In, Out], request func(*http.Request) (saga.Key, In, error), opts ...Option) http.Handler {
	h := &handler[In, Out]{newConfig(opts), runner, request}
	if runner == nil {
		h.c.breaks(errors.New("sagahttp: Handler: the runner is nil"))
	}
	if request == nil {
		h.c.breaks(errors.New("sagahttp: Handler: the request function is nil"))
	}
	h.c.tell()
	return h
}

type handler[In, Out any] struct {
	c       *config
	runner  saga.Runner[In, Out]
	request func(*http.Request) (saga.Key, In, error)
}

var unsafeMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// ServeHTTP answers one request.
func (h *handler[In, Out]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.c.serve(w, r, unsafeMethods, h.answer)
}

// serve answers a request by f, which writes nothing itself.
func (c *config) serve(w http.ResponseWriter, r *http.Request, methods []string, f func(*http.Request) *answer) {
	switch {
	case c.broken != nil:
		c.internal(c.broken).write(w, r)
		return
	case !slices.Contains(methods, r.Method):
		allow := http.Header{}
		for _, m := range methods {
			allow.Add("Allow", m)
		}
		c.refuse(&Refusal{kind: &kindMethod, Header: allow}).write(w, r)
		return
	}
	bounded := r.WithContext(c.withPolicy(r.Context())) // a copy: a handler does not change the request
	if r.Body != nil {
		bounded.Body = http.MaxBytesReader(w, r.Body, c.bodyLimit)
	}
	c.guarded(bounded, f).write(w, r)
}

// guarded calls f, and makes an answer of its panic.
func (c *config) guarded(r *http.Request, f func(*http.Request) *answer) (a *answer) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's own way to abort an answer; its server expects it
		}
		a = c.internal(fmt.Errorf("panic: %v", p), zap.Stack("stack"))
	}()
	return f(r)
}

func (h *handler[In, Out]) answer(r *http.Request) *answer {
	key, in, err := h.request(r)
	if err != nil {
		return h.c.refuse(err)
	}
	if r.Body != nil {
		// Only with the content read to its end does net/http notice that the client has disconnected.
		_, _ = io.Copy(io.Discard, r.Body)
	}
	ctx, cancel := h.c.runContext(r.Context())
	defer cancel()
	wait := preferredWait(r.Header, h.c.maxWait)
	var info saga.RunInfo
	out, err := h.runner.Run(ctx, key, in, saga.Wait(wait), saga.Report(&info))
	a := h.outcome(key, out, err)
	if info.Replayed && info.Status.Ended() {
		a.header.Set(replayedHeader, "true")
	}
	if wait > 0 {
		a.header.Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	return a
}

// runContext is the context of the run: the client's, or one that outlives the client.
func (c *config) runContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.detached {
		ctx = context.WithoutCancel(ctx)
	}
	if c.timeout > 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return ctx, func() {}
}

// outcome is the answer to a run, from its result or its error alone.
func (h *handler[In, Out]) outcome(key saga.Key, out Out, err error) *answer {
	a := h.result(key, out, err)
	if to := h.c.link(h.c.statusLink, key); to != "" {
		a.header.Set("Link", "<"+to+`>; rel="status"`)
	}
	return a
}

func (h *handler[In, Out]) result(key saga.Key, out Out, err error) *answer {
	if err != nil {
		return h.c.failedRun(key, err)
	}
	raw, err := state.Encode(out)
	if err != nil {
		return h.c.internal(fmt.Errorf("run %s is completed, but its result can't be sent: %w", key, err))
	}
	a := newAnswer(h.c.success, "application/json", append(raw, '\n'))
	if to := h.c.link(h.c.location, key); to != "" {
		a.header.Set("Location", to)
	}
	return a
}

// link is the URL that of makes of the key, safe to stand in a field; empty: none.
func (c *config) link(of func(saga.Key) string, key saga.Key) string {
	if of == nil {
		return ""
	}
	u, err := url.Parse(of(key))
	if err != nil {
		c.log.Error("http_link_malformed", zap.String("key", key.String()), zap.Error(err))
		return ""
	}
	return u.String()
}

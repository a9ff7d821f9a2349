package sagalambda

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
)

// proxy serves an HTTP handler with requests that come as events.
type proxy struct {
	c *config
	h http.Handler
}

func newProxy(h http.Handler, opts []Option) *proxy {
	c := newConfig(opts)
	if absent.Is(h) {
		c.breaks(errors.New("sagalambda: the HTTP handler is nil"))
	}
	c.check(true, true)
	return &proxy{c, h}
}

type eventKey struct{}

// EventFrom is the event that an HTTP request came as, from the request's context: it holds what an authorizer has found
// out, of which a tenant can be made. T is the event's type; see [APIGateway].
func EventFrom[T any](ctx context.Context) (T, bool) {
	event, ok := ctx.Value(eventKey{}).(T)
	return event, ok
}

// incoming is a request, in whatever form it came.
type incoming struct {
	event   any
	method  string
	path    string
	decoded bool // the path is no longer percent-encoded
	query   string
	header  http.Header
	source  string
	body    string
	encoded bool
}

// repeatedHeaderOf are the fields of payload format 1.0. A field that came in two spellings has the values of both, in the
// order of the spellings: a key that comes twice is seen to be repeated, and no map's order picks one. What the event's
// two lists both tell counts once.
func repeatedHeaderOf(e events.APIGatewayProxyRequest) http.Header {
	h := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(e.MultiValueHeaders)) {
		for _, value := range e.MultiValueHeaders[name] {
			h.Add(name, value)
		}
	}
	told := h.Clone()
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if value := e.Headers[name]; len(e.MultiValueHeaders[name]) == 0 && !slices.Contains(told.Values(name), value) {
			h.Add(name, value)
		}
	}
	return h
}

// headerOf are the fields of payload format 2.0, in which repeated ones are joined already.
func headerOf(fields map[string]string, cookies []string) http.Header {
	h := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		h.Add(name, fields[name])
	}
	if len(cookies) > 0 {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	return h
}

func queryOf(e events.APIGatewayProxyRequest) string {
	q := url.Values(e.MultiValueQueryStringParameters)
	if q == nil {
		q = url.Values{}
		for name, value := range e.QueryStringParameters {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

// request is the HTTP request; an error is the client's.
func (in *incoming) request(ctx context.Context) (*http.Request, error) {
	body := []byte(in.body)
	if in.encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(in.body); err != nil {
			return nil, errors.New("the body is no base64")
		}
	}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, eventKey{}, in.event), in.method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the method is malformed")
	}
	r.URL = in.target()
	r.Header, r.Host, r.RequestURI = in.header, in.header.Get("Host"), r.URL.RequestURI()
	r.Header.Del("Host")
	if in.source != "" {
		r.RemoteAddr = in.source + ":0"
	}
	return r, nil
}

// target is the URL of the request. The path is never parsed as one: it may begin with two slashes, which are no host then,
// and what looks like a query in it is none.
func (in *incoming) target() *url.URL {
	raw := in.path
	if !strings.HasPrefix(raw, "/") {
		raw = "/" + raw
	}
	target := &url.URL{Path: raw, RawQuery: in.query}
	if path, err := url.PathUnescape(raw); err == nil && !in.decoded {
		target.Path = path
		if target.EscapedPath() != raw {
			target.RawPath = raw
		}
	}
	return target
}

func (p *proxy) serve(ctx context.Context, in *incoming) (*answer, error) {
	if p.c.broken != nil {
		return nil, p.c.broken
	}
	r, err := in.request(ctx)
	if err != nil {
		p.c.log.Warn("http_event_malformed", zap.Error(err))
		a := newAnswer()
		http.Error(a, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return a, nil
	}
	return p.guarded(r), nil
}

// guarded calls the handler. When it doesn't return, as after a panic, the answer is 500, in place of whatever was written
// before.
func (p *proxy) guarded(r *http.Request) *answer {
	a := newAnswer()
	err := called("the HTTP handler", func() error {
		p.h.ServeHTTP(a, r)
		return nil
	})
	if err != nil {
		p.c.told("http_handler_panic", err)
		a = newAnswer()
		http.Error(a, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
	a.WriteHeader(http.StatusOK) // if nothing was
	return a
}

// answer is an http.ResponseWriter in memory.
type answer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

var _ http.ResponseWriter = (*answer)(nil)

func newAnswer() *answer { return &answer{header: http.Header{}} }

// Header is what will be sent.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader sets the status, once. An informational one is not sent.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status, a.sent = status, a.header.Clone()
	}
}

// Write adds to the content.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 && a.header.Get("Content-Type") == "" {
		a.header.Set("Content-Type", http.DetectContentType(p))
	}
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// content is the body as a string, and whether that is base64.
func (a *answer) content() (body string, encoded bool) {
	if a.sent.Get("Content-Encoding") == "" && utf8.Valid(a.body.Bytes()) {
		return a.body.String(), false
	}
	return base64.StdEncoding.EncodeToString(a.body.Bytes()), true
}

// joined are the fields with one value each, and the cookies, which can't be joined.
func (a *answer) joined() (fields map[string]string, cookies []string) {
	fields = make(map[string]string, len(a.sent))
	for name, values := range a.sent {
		if name == "Set-Cookie" {
			cookies = values
			continue
		}
		fields[name] = strings.Join(values, ", ")
	}
	return fields, cookies
}

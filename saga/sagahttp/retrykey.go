package sagahttp

import (
	"context"
	"net/http"
	"strings"
	"time"
)

type contextKey struct{}

// requestKey is the key of a logical request.
type requestKey struct {
	id    string
	first time.Time // zero: it was never sent
}

// KeyContext returns a context whose request [RetryTransport] sends with this key, such as an order's number. Every
// request with this context is the same request to the server, so take a context for each.
func KeyContext(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, requestKey{id: key})
}

// KeyContextSince is [KeyContext] for a key that may have been sent before, first at about the given time, which the
// program has kept together with the key: once the server can have forgotten the key, the request is refused with
// [ErrKeyExpired].
func KeyContextSince(ctx context.Context, key string, first time.Time) context.Context {
	return context.WithValue(ctx, contextKey{}, requestKey{id: key, first: first})
}

// keyOf is the key of the request's context. A redirect that repeats the request (307, 308) keeps the key of the request
// that was redirected.
func keyOf(req *http.Request) (requestKey, bool) {
	if key, ok := req.Context().Value(contextKey{}).(requestKey); ok {
		return key, true
	}
	if req.Response != nil && req.Response.Request != nil && req.Response.Request.Method == req.Method {
		key, ok := req.Response.Request.Context().Value(contextKey{}).(requestKey)
		return key, ok
	}
	return requestKey{}, false
}

// fieldState is what a request's own header says of the key.
type fieldState int

const (
	noField fieldState = iota
	withKey
	withoutKey // a nil value: on purpose without a key
)

// ownKey looks past [http.Header.Get], which finds neither a nil value nor a name in lower case. An empty string is as
// good as no field.
func ownKey(h http.Header) fieldState {
	for name, values := range h {
		switch {
		case !strings.EqualFold(name, keyHeader):
		case len(values) == 0:
			return withoutKey
		case values[0] != "":
			return withKey
		}
	}
	return noField
}

// setKey sets the field, in place of an empty one under whatever spelling.
func setKey(req *http.Request, value string) {
	for name := range req.Header {
		if strings.EqualFold(name, keyHeader) {
			delete(req.Header, name)
		}
	}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set(keyHeader, value)
}

package steps

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

func inStep(runKey string) context.Context {
	return withKey(context.Background(), &drive.Call{RunKey: runKey, Step: "charge_card", Phase: drive.Do})
}

// seen is a RoundTripper that keeps what it was given and answers 204.
type seen struct {
	mu     sync.Mutex
	reqs   []*http.Request
	closed int
}

func (s *seen) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reqs = append(s.reqs, req)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: req}, nil
}

func (s *seen) CloseIdleConnections() { s.closed++ }

func newRequest(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.test/charges?secret=s3cret", strings.NewReader("{}"))
	require.NoError(t, err)
	return req
}

func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestKeyTransportSetsTheStepsKey(t *testing.T) {
	base := &seen{}
	req := newRequest(t, inStep("a#create_order#1"))
	req.Header.Set("Content-Type", "application/json")
	roundTrip(t, &KeyTransport{Base: base}, req)

	require.Len(t, base.reqs, 1)
	sent := base.reqs[0]
	assert.Equal(t, []string{"a#create_order#1/charge_card"}, sent.Header.Values("Idempotency-Key"))
	assert.Equal(t, "application/json", sent.Header.Get("Content-Type"))
	assert.NotSame(t, req, sent, "a RoundTripper does not change the request it is given")
	assert.Empty(t, req.Header.Values("Idempotency-Key"))
	assert.Equal(t, req.Context(), sent.Context())
}

func TestKeyTransportInACompensation(t *testing.T) {
	base := &seen{}
	ctx := withKey(context.Background(), &drive.Call{RunKey: "a#create_order#1", Step: "charge_card", Phase: drive.Undo})
	roundTrip(t, &KeyTransport{Base: base}, newRequest(t, ctx))
	assert.Equal(t, "a#create_order#1/charge_card/compensate", base.reqs[0].Header.Get("Idempotency-Key"))
}

func TestKeyTransportLeavesTheRequestAlone(t *testing.T) {
	for name, prepare := range map[string]func(http.Header){
		"a key is set":                  func(h http.Header) { h.Set("Idempotency-Key", "mine") },
		"a key is set in lower case":    func(h http.Header) { h["idempotency-key"] = []string{"mine"} },
		"a nil value says: send no key": func(h http.Header) { h["Idempotency-Key"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			base := &seen{}
			req := newRequest(t, inStep("a#create_order#1"))
			prepare(req.Header)
			want := req.Header.Clone()
			roundTrip(t, &KeyTransport{Base: base}, req)
			assert.Same(t, req, base.reqs[0])
			assert.Equal(t, want, req.Header)
		})
	}
	t.Run("no step", func(t *testing.T) {
		base := &seen{}
		req := newRequest(t, context.Background())
		roundTrip(t, &KeyTransport{Base: base}, req)
		assert.Same(t, req, base.reqs[0])
		assert.NotContains(t, req.Header, "Idempotency-Key")
	})
}

func TestKeyTransportReplacesAnEmptyKey(t *testing.T) {
	base := &seen{}
	req := newRequest(t, inStep("a#create_order#1"))
	req.Header.Set("Idempotency-Key", "")
	roundTrip(t, &KeyTransport{Base: base}, req)
	assert.Equal(t, []string{"a#create_order#1/charge_card"}, base.reqs[0].Header.Values("Idempotency-Key"))
}

func TestKeyTransportWithoutAHeaderMap(t *testing.T) {
	base := &seen{}
	req := newRequest(t, inStep("a#create_order#1"))
	req.Header = nil
	roundTrip(t, &KeyTransport{Base: base}, req)
	assert.Equal(t, "a#create_order#1/charge_card", base.reqs[0].Header.Get("Idempotency-Key"))
	assert.Nil(t, req.Header)
}

// bodyClosed tells whether the request's body was closed.
type bodyClosed struct {
	io.Reader
	closed bool
}

func (b *bodyClosed) Close() error { b.closed = true; return nil }

func TestKeyTransportRefusesAKeyThatWouldChangeOnTheWay(t *testing.T) {
	for _, runKey := range []string{" a#create_order#1", "\ta#create_order#1", "a#create\x7forder#1", "a\r\nX: y#o#1"} {
		base := &seen{}
		body := &bodyClosed{Reader: strings.NewReader("{}")}
		req := newRequest(t, inStep(runKey))
		req.Body = body
		client := &http.Client{Transport: &KeyTransport{Base: base}}
		resp, err := client.Do(req)
		require.Error(t, err)
		if resp != nil {
			require.NoError(t, resp.Body.Close())
		}
		assert.True(t, IsPermanent(err), "nothing was sent, so the call is known not to have taken effect")
		require.ErrorIs(t, err, errKeyUnsendable)
		assert.Empty(t, base.reqs)
		assert.True(t, body.closed)
		var transport *permanentError
		require.ErrorAs(t, err, &transport)
		assert.NotContains(t, transport.Error(), "s3cret")
		assert.NotContains(t, transport.Error(), runKey)
	}
}

func TestKeyTransportOverTheWire(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Values("Idempotency-Key")...)
	}))
	defer server.Close()
	client := &http.Client{Transport: &KeyTransport{Base: server.Client().Transport}}
	for _, runKey := range []string{"a#create_order#1", "a#create_order#注文-1 x", "a#create_order#%0A"} {
		req, err := http.NewRequestWithContext(inStep(runKey), http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, runKey+"/charge_card", got[len(got)-1], "byte for byte, so that it equals Outcome.Key")
	}
	assert.Len(t, got, 3)
}

func TestKeyTransportUsesTheDefaultTransport(t *testing.T) {
	base := &seen{}
	old := http.DefaultTransport
	http.DefaultTransport = base
	defer func() { http.DefaultTransport = old }()
	roundTrip(t, &KeyTransport{}, newRequest(t, inStep("a#create_order#1")))
	assert.Len(t, base.reqs, 1)
}

func TestKeyTransportClosesIdleConnections(t *testing.T) {
	base := &seen{}
	(&http.Client{Transport: &KeyTransport{Base: base}}).CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	(&KeyTransport{Base: roundTripFunc(nil)}).CloseIdleConnections() // a base that has no such method
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

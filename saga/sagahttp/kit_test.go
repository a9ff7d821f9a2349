package sagahttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct {
	No     string `json:"no"`
	Amount int64  `json:"amount"`
}

type receipt struct {
	ChargeID string `json:"charge_id"`
}

type (
	orderRun = steps.Run[order]
	mapRun   = steps.Run[map[string]string]
)

// shop is a saga of two steps with a hook in the second, whose effects it counts.
type shop struct {
	mu       sync.Mutex
	charged  map[string]int64
	released int
	// charge is called before the effect of the second step; nil: nothing.
	charge func(ctx context.Context, r *orderRun) error
	// release is called in the compensation of the first; nil: nothing.
	release func(ctx context.Context, r *orderRun) error
}

func (s *shop) definition() *saga.Definition[order, receipt] {
	reserve := steps.Do("reserve", func(context.Context, *orderRun) error { return nil }).
		Compensate(func(ctx context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
			if s.release != nil {
				if err := s.release(ctx, r); err != nil {
					return err
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.released++
			return nil
		}).CompensateRetry(steps.RetryPolicy{PerRun: 1})
	charge := steps.New("charge", func(ctx context.Context, r *orderRun) (string, error) {
		if s.charge != nil {
			if err := s.charge(ctx, r); err != nil {
				return "", err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.charged == nil {
			s.charged = map[string]int64{}
		}
		s.charged[r.IdempotencyKey()] += r.Input.Amount
		return "ch-" + r.Input.No, nil
	}).Compensate(func(context.Context, *orderRun, steps.Outcome[string]) error { return nil }).
		Retry(steps.RetryPolicy{PerRun: 1})
	return saga.Define("checkout", func(_ context.Context, r *orderRun) (receipt, error) {
		return receipt{charge.Output(r)}, nil
	}, reserve, charge)
}

// total is all that was charged.
func (s *shop) total() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, amount := range s.charged {
		sum += amount
	}
	return sum
}

func (s *shop) on(t *testing.T, store state.Store, opts ...saga.Option) *saga.Orchestrator[order, receipt] {
	t.Helper()
	o, err := saga.New(s.definition(), store, opts...)
	require.NoError(t, err)
	return o
}

// tenantOf stands for an authentication.
func tenantOf(r *http.Request) (string, error) {
	who, _, ok := r.BasicAuth()
	if !ok {
		return "", sagahttp.Status(http.StatusUnauthorized, errors.New("the session table has no such row"))
	}
	return who, nil
}

var usual = sagahttp.Request[order](tenantOf)

// server serves a handler over a loopback connection.
type server struct {
	*httptest.Server
}

func serve(t *testing.T, h http.Handler) server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return server{s}
}

// reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) problem(t *testing.T) sagahttp.Problem {
	t.Helper()
	assert.Equal(t, sagahttp.ProblemType, r.header.Get("Content-Type"))
	d := json.NewDecoder(strings.NewReader(r.body))
	d.DisallowUnknownFields()
	var p sagahttp.Problem
	require.NoError(t, d.Decode(&p), "%q", r.body)
	assert.Equal(t, r.status, p.Status)
	assert.NotEmpty(t, p.Title)
	assert.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, p.Instance)
	return p
}

// slug is the end of the problem's type.
func (r reply) slug(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(r.problem(t).Type, sagahttp.DefaultTypes)
}

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// edit changes a request before it is sent.
type edit func(*http.Request)

func header(name string, values ...string) edit {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func as(tenant string) edit { return func(r *http.Request) { r.SetBasicAuth(tenant, "") } }

func method(m string) edit { return func(r *http.Request) { r.Method = m } }

// post sends an order with a key, as tenant-a.
func (s server) post(t *testing.T, key, body string, edits ...edit) reply {
	t.Helper()
	got, err := s.send(t.Context(), key, body, edits...)
	require.NoError(t, err)
	return got
}

func (s server) send(ctx context.Context, key, body string, edits ...edit) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.SetBasicAuth("tenant-a", "")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	for _, e := range edits {
		e(req)
	}
	return s.do(req)
}

func (s server) do(req *http.Request) (reply, error) {
	resp, err := s.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

const (
	theKey   = "order-001"
	theOrder = `{"no":"order-001","amount":1200}`
)

func newStore() *memory.Store { return memory.New() }

// recordOf is the stored record of tenant-a's run of theKey.
func recordOf(t *testing.T, store state.Store) *state.Record {
	t.Helper()
	rec, err := store.Get(t.Context(), saga.Key{Tenant: "tenant-a", Operation: "checkout", ID: theKey}.String())
	require.NoError(t, err)
	return rec
}

// fake is a Runner that does what it is told.
type fake[In, Out any] func(ctx context.Context, key saga.Key, in In) (Out, error)

func (f fake[In, Out]) Run(ctx context.Context, key saga.Key, in In, _ ...saga.RunOption) (Out, error) {
	return f(ctx, key, in)
}

// logged is a log in memory.
type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logged) Sync() error { return nil }

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

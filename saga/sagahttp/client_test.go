package sagahttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// served tells when the handler has returned.
func served(h http.Handler) (http.Handler, <-chan struct{}) {
	done := make(chan struct{}, 8)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { done <- struct{}{} }()
		h.ServeHTTP(w, r)
	}), done
}

// byBusinessKey reads nothing of the content.
func byBusinessKey(r *http.Request) (saga.Key, order, error) {
	tenant, err := tenantOf(r)
	return saga.Key{Tenant: tenant, ID: r.URL.Query().Get("order")}, order{No: "order-001", Amount: 1200}, err
}

func TestAClientThatDisconnectsInterruptsItsRun(t *testing.T) {
	for name, tc := range map[string]struct {
		http2   bool
		request func(*http.Request) (saga.Key, order, error)
	}{
		"HTTP/1.1":                    {false, usual},
		"HTTP/1.1, content is unread": {false, byBusinessKey},
		"HTTP/2":                      {true, usual},
		"HTTP/2, content is unread":   {true, byBusinessKey},
	} {
		t.Run(name, func(t *testing.T) {
			started, hangs := make(chan struct{}), true
			shop, store := &shop{charge: func(ctx context.Context, _ *orderRun) error {
				if !hangs {
					return nil
				}
				close(started)
				<-ctx.Done() // as a call to the outside does
				return ctx.Err()
			}}, newStore()
			h, done := served(sagahttp.Handler(shop.on(t, store), tc.request))
			s := server{httptest.NewUnstartedServer(h)}
			s.EnableHTTP2 = tc.http2
			if tc.http2 {
				s.StartTLS()
			} else {
				s.Start()
			}
			t.Cleanup(s.Close)
			s.URL += "/?order=" + theKey

			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			gone := make(chan error)
			go func() {
				_, err := s.send(ctx, theKey, theOrder)
				gone <- err
			}()
			<-started
			disconnect()
			require.ErrorIs(t, <-gone, context.Canceled)
			<-done
			rec := recordOf(t, store)
			assert.Equal(t, state.StatusInterrupted, rec.Status)
			assert.Zero(t, rec.LeaseUntil, "the lease is given back")

			hangs = false
			got := s.post(t, theKey, theOrder)
			assert.Equal(t, http.StatusCreated, got.status, got.body)
			assert.EqualValues(t, 1200, shop.total())
		})
	}
}

func TestADetachedRunGoesOnWithoutItsClient(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	var ended error
	shop, store := &shop{charge: func(ctx context.Context, _ *orderRun) error {
		close(started)
		<-goOn
		ended = ctx.Err()
		return nil
	}}, newStore()
	h, done := served(sagahttp.Handler(shop.on(t, store), usual, sagahttp.WithTimeout(time.Minute), sagahttp.WithDetached()))
	s := serve(t, h)
	ctx, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	gone := make(chan error)
	go func() {
		_, err := s.send(ctx, theKey, theOrder)
		gone <- err
	}()
	<-started
	disconnect()
	require.ErrorIs(t, <-gone, context.Canceled)

	// A graceful shutdown waits for the run, since it goes on within its handler.
	shut := make(chan error)
	go func() { shut <- s.Config.Shutdown(context.Background()) }()
	select {
	case err := <-shut:
		t.Fatalf("the server has not waited: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-done
	require.NoError(t, <-shut)
	require.NoError(t, ended)
	assert.Equal(t, state.StatusCompleted, recordOf(t, store).Status)

	got := serve(t, sagahttp.Handler(shop.on(t, store), usual)).post(t, theKey, theOrder)
	assert.Equal(t, http.StatusCreated, got.status)
	assert.True(t, got.replayed())
	assert.EqualValues(t, 1200, shop.total())
}

func TestTheTimeOfARunIsBounded(t *testing.T) {
	for name, opts := range map[string][]sagahttp.Option{
		"with its client": {sagahttp.WithTimeout(time.Second)},
		"detached":        {sagahttp.WithDetached(), sagahttp.WithTimeout(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			shop, store := &shop{charge: func(ctx context.Context, _ *orderRun) error {
				<-ctx.Done()
				return ctx.Err()
			}}, newStore()
			o := shop.on(t, store, saga.WithMargin(500*time.Millisecond))
			got := serve(t, sagahttp.Handler(o, usual, opts...)).post(t, theKey, theOrder)
			assert.Equal(t, http.StatusServiceUnavailable, got.status)
			assert.Equal(t, "interrupted", got.slug(t))
			assert.NotEmpty(t, got.header.Get("Retry-After"))
			assert.Equal(t, state.StatusInterrupted, recordOf(t, store).Status)
		})
	}
}

func TestPanics(t *testing.T) {
	run := fake[order, receipt](func(context.Context, saga.Key, order) (receipt, error) { panic("s3cret") })
	for name, h := range map[string]http.Handler{
		"in the request function": sagahttp.Handler(run, func(*http.Request) (saga.Key, order, error) { panic(errors.New("s3cret")) }),
		"in the runner":           sagahttp.Handler(run, usual),
		"of a nil runner":         sagahttp.Handler((*saga.Orchestrator[order, receipt])(nil), usual),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, h)
			for range 2 {
				got := s.post(t, theKey, theOrder)
				assert.Equal(t, http.StatusInternalServerError, got.status)
				assert.Equal(t, "internal", got.slug(t))
				assert.NotContains(t, got.body, "s3cret")
			}
		})
	}
}

func TestAnAbortedAnswerIsNetHTTPsOwnMatter(t *testing.T) {
	s := serve(t, sagahttp.Handler(answering201, func(*http.Request) (saga.Key, order, error) { panic(http.ErrAbortHandler) }))
	_, err := s.send(t.Context(), theKey, theOrder)
	require.Error(t, err, "the connection was closed without an answer")
}

var answering201 = fake[order, receipt](func(context.Context, saga.Key, order) (receipt, error) { return receipt{}, nil })

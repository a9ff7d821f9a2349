package sagahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// keyOf joins a part of the path to the tenant.
func keyOf(r *http.Request) (saga.Key, error) {
	tenant, err := tenantOf(r)
	return saga.Key{Tenant: tenant, Operation: "checkout", ID: r.PathValue("key")}, err
}

// both serves a saga and its status.
func both(t *testing.T, o *saga.Orchestrator[order, receipt], runs sagahttp.Getter, opts ...sagahttp.Option) server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /{$}", sagahttp.Handler(o, usual, opts...))
	mux.Handle("/{key}", sagahttp.StatusHandler(runs, keyOf, opts...))
	return serve(t, mux)
}

func (s server) get(t *testing.T, key string, edits ...edit) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/"+key, nil)
	require.NoError(t, err)
	req.SetBasicAuth("tenant-a", "")
	for _, e := range edits {
		e(req)
	}
	got, err := s.do(req)
	require.NoError(t, err)
	return got
}

func (r reply) runStatus(t *testing.T) sagahttp.RunStatus {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	assert.Equal(t, "no-store", r.header.Get("Cache-Control"))
	var s sagahttp.RunStatus
	require.NoError(t, json.Unmarshal([]byte(r.body), &s))
	assert.WithinDuration(t, time.Now(), s.CreatedAt, time.Minute)
	assert.WithinDuration(t, time.Now(), s.UpdatedAt, time.Minute)
	return s
}

func TestTheStatusOfARun(t *testing.T) {
	transient, permanent := errors.New("s3cret"), steps.WithCode("card_declined", steps.Permanent(errors.New("s3cret")))
	for name, tc := range map[string]struct {
		charge, release error
		reverse         bool
		status          state.Status
		retryAfter      bool
	}{
		"completed":   {status: state.StatusCompleted},
		"interrupted": {charge: transient, status: state.StatusInterrupted, retryAfter: true},
		"failed":      {charge: permanent, status: state.StatusFailed},
		"undoing":     {charge: permanent, release: transient, status: state.StatusCompensating, retryAfter: true},
		"blocked":     {charge: permanent, release: permanent, status: state.StatusBlocked},
		"reversed":    {reverse: true, status: state.StatusReversed},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			o := (&shop{
				charge:  func(context.Context, *orderRun) error { return tc.charge },
				release: func(context.Context, *orderRun) error { return tc.release },
			}).on(t, store)
			opts := []sagahttp.Option{sagahttp.WithFailures(map[string]int{"card_declined": 402})}
			s := both(t, o, o, opts...)
			first := s.post(t, theKey, theOrder)
			if tc.reverse {
				require.NoError(t, o.Reverse(t.Context(), saga.Key{Tenant: "tenant-a", ID: theKey}, ""))
				first = s.post(t, theKey, theOrder)
			}
			before := recordOf(t, store)
			got := s.get(t, theKey)
			is := got.runStatus(t)
			assert.Equal(t, tc.status, is.Status)
			assert.Equal(t, tc.retryAfter, got.header.Get("Retry-After") != "")
			assert.NotContains(t, got.body, "s3cret")
			assert.NotContains(t, got.body, "reserve")
			assert.Equal(t, before, recordOf(t, store), "it runs nothing")
			switch {
			case tc.status == state.StatusCompleted:
				assert.JSONEq(t, first.body, string(is.Result))
				assert.Nil(t, is.Problem)
			case tc.retryAfter:
				assert.Nil(t, is.Result)
				assert.Nil(t, is.Problem)
			default:
				assert.Nil(t, is.Result)
				require.NotNil(t, is.Problem)
				assert.Equal(t, first.problem(t), *is.Problem, "as the request itself is answered")
			}

			byOperator := both(t, o, saga.NewOperator(store), append(opts, sagahttp.WithSteps())...).get(t, theKey).runStatus(t)
			require.Len(t, byOperator.Steps, 2)
			assert.Equal(t, sagahttp.StepStatus{Name: "reserve", Status: before.Steps[0].Status}, byOperator.Steps[0])
			byOperator.Steps = nil
			assert.Equal(t, is, byOperator)
		})
	}
}

func TestTheStatusOfARunAtWork(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	o := (&shop{charge: func(context.Context, *orderRun) error {
		close(started)
		<-goOn
		return nil
	}}).on(t, newStore())
	s := both(t, o, o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := s.send(context.Background(), theKey, theOrder)
		assert.NoError(t, err)
	}()
	<-started
	got := s.get(t, theKey)
	assert.Equal(t, state.StatusInProgress, got.runStatus(t).Status)
	assert.Equal(t, "1", got.header.Get("Retry-After"))
	close(goOn)
	<-done
	assert.Equal(t, state.StatusCompleted, s.get(t, theKey).runStatus(t).Status)
}

func TestAStatusThatIsNotToBeHad(t *testing.T) {
	o := (&shop{}).on(t, newStore())
	s := both(t, o, o)
	s.post(t, theKey, theOrder)

	got := s.get(t, "order-002")
	assert.Equal(t, http.StatusNotFound, got.status)
	assert.Equal(t, "not-found", got.slug(t))
	got = s.get(t, theKey, as("tenant-b"))
	assert.Equal(t, "not-found", got.slug(t), "another tenant's run is none")
	got = s.get(t, theKey, func(r *http.Request) { r.Header.Del("Authorization") })
	assert.Equal(t, http.StatusUnauthorized, got.status)
	got = s.get(t, theKey, method(http.MethodPost))
	assert.Equal(t, http.StatusMethodNotAllowed, got.status)
	assert.Equal(t, []string{"GET", "HEAD"}, got.header.Values("Allow"))
	got = s.get(t, theKey, method(http.MethodHead))
	assert.Equal(t, http.StatusOK, got.status)
	assert.Empty(t, got.body)
	assert.Equal(t, s.get(t, theKey).header.Get("Content-Length"), got.header.Get("Content-Length"))

	for name, h := range map[string]http.Handler{
		"no getter":       sagahttp.StatusHandler(nil, keyOf),
		"no key function": sagahttp.StatusHandler(o, nil),
		"a panic":         sagahttp.StatusHandler(o, func(*http.Request) (saga.Key, error) { panic("s3cret") }),
		"a broken store":  sagahttp.StatusHandler(broken{}, keyOf),
	} {
		got := serve(t, h).get(t, theKey)
		assert.GreaterOrEqual(t, got.status, 500, name)
		assert.NotEmpty(t, got.slug(t), name)
		assert.NotContains(t, got.body, "s3cret", name)
	}
}

type broken struct{}

func (broken) Get(context.Context, saga.Key) (*state.Record, error) {
	return nil, &saga.Error{Kind: saga.ErrStore, Err: errors.New("s3cret")}
}

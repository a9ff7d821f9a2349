package statetest

import (
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

func testCancel(s *subject) {
	require.ErrorIs(s, s.store.RequestCancel(s.Context(), s.keyOf("absent"), state.CancelRequest{At: now()}), state.ErrNotFound)
	s.gone(s.keyOf("absent"), "RequestCancel must not make a record")

	type outcome int
	const (
		stored outcome = iota
		nothing
		refused
	)
	for _, c := range []struct {
		name   string
		status state.Status
		pivot  string
		second state.StepStatus
		want   outcome
	}{
		{"in progress", state.StatusInProgress, "", state.StepPending, stored},
		{"in progress, pivot ahead", state.StatusInProgress, "third", state.StepDone, stored},
		{"in progress, pivot started", state.StatusInProgress, "second", state.StepStarted, stored},
		{"in progress, pivot done", state.StatusInProgress, "second", state.StepDone, refused},
		{"interrupted", state.StatusInterrupted, "", state.StepDone, stored},
		{"interrupted, pivot pending", state.StatusInterrupted, "second", state.StepPending, stored},
		{"interrupted, pivot done", state.StatusInterrupted, "second", state.StepDone, refused},
		{"going backwards", state.StatusCompensating, "", state.StepDone, nothing},
		{"going backwards over the pivot", state.StatusCompensating, "second", state.StepDone, nothing},
		{"completed", state.StatusCompleted, "", state.StepDone, refused},
		{"failed", state.StatusFailed, "", state.StepCompensated, refused},
		{"reversed", state.StatusReversed, "", state.StepCompensated, refused},
		{"blocked", state.StatusBlocked, "", state.StepPending, refused},
	} {
		rec := s.record(c.name)
		rec.Status, rec.Pivot = c.status, c.pivot
		rec.Steps[0].Status, rec.Steps[1].Status = state.StepDone, c.second
		rec = s.create(rec)
		for _, reason := range []string{"the first", "the second"} {
			req := state.CancelRequest{Reason: reason, Actor: "someone", At: now()}
			err := s.store.RequestCancel(s.Context(), rec.Key, req)
			if c.want == refused {
				require.ErrorIs(s, err, state.ErrNotAllowed, c.name)
			} else {
				require.NoError(s, err, c.name)
			}
			if c.want == stored && rec.Cancel == nil {
				rec.Cancel = &req
			}
			s.stored(rec, "RequestCancel, "+c.name+", "+reason)
		}
	}
}

// testCancelRaces: a request and a fenced write at the same time have one order, and both know it.
func testCancelRaces(s *subject) {
	const rounds = 25
	for i := range rounds {
		rec := s.record(s.fresh("record"))
		pivot := i%2 == 0
		if pivot {
			rec.Pivot = "first"
		}
		rec = s.create(rec)
		ch := s.done(rec, 0)
		ch.IfNoCancel = true
		req := state.CancelRequest{Reason: "r", Actor: "a", At: now()}
		var cancelled, committed error
		both := []func(){
			func() { cancelled = s.store.RequestCancel(s.Context(), rec.Key, req) },
			func() { committed = s.store.Commit(s.Context(), ch) },
		}
		if i%4 < 2 { // which of them tends to be first must not depend on how goroutines are started
			slices.Reverse(both)
		}
		together(both...)

		want := rec.Clone()
		if committed == nil {
			require.NoError(s, ch.Apply(want))
			if pivot {
				require.ErrorIs(s, cancelled, state.ErrNotAllowed, "the pivot was recorded first")
			} else {
				require.NoError(s, cancelled)
				want.Cancel = &req
			}
		} else {
			require.NoError(s, cancelled, "the write was refused, so the request must have come first")
			var refused *state.ConflictError
			require.ErrorAs(s, committed, &refused)
			want.Cancel = &req
			s.equal(want, refused.Current, "ConflictError.Current")
		}
		s.stored(want, "a request and a write at the same time")
	}

	s.part("many requests", func(s *subject) {
		rec := s.create(s.record("record"))
		var all []func()
		for range 8 {
			req := state.CancelRequest{Reason: s.fresh("reason"), Actor: "a", At: now()}
			all = append(all, func() { s.noError(s.store.RequestCancel(s.Context(), rec.Key, req), "RequestCancel") })
		}
		together(all...)
		got := s.get(rec.Key)
		require.NotNil(s, got.Cancel)
		rec.Cancel = got.Cancel
		s.equal(rec, got, "many requests at the same time")
		require.NoError(s, s.store.RequestCancel(s.Context(), rec.Key, state.CancelRequest{Reason: "late", At: now()}))
		s.stored(rec, "the first request stays")
	})
}

// together calls all functions at once and waits for them.
func together(all ...func()) {
	var started, ended sync.WaitGroup
	started.Add(len(all))
	for _, f := range all {
		ended.Go(func() {
			started.Done()
			started.Wait()
			f()
		})
	}
	ended.Wait()
}

// noError is for goroutines of a test, which must not stop it.
func (s *subject) noError(err error, what string) bool {
	if err != nil {
		s.Errorf("%s: %v", what, err)
	}
	return err == nil
}

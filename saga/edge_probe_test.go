package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// flaky is a step that fails once and then is asked about.
func flaky(probe func(context.Context, *orderRun) (steps.None, bool, error)) *steps.Step[order, steps.None] {
	failed := false
	return steps.Do("a", func(context.Context, *orderRun) error {
		if failed {
			return nil
		}
		failed = true
		return errors.New("transient")
	}).Retry(steps.RetryPolicy{PerRun: 1}).Probe(probe)
}

// For the race detector: a Probe that is no longer waited for answers all the same, into nothing.
func TestAProbeThatAnswersTooLate(t *testing.T) {
	release, back := make(chan struct{}), make(chan struct{})
	a := flaky(func(context.Context, *orderRun) (steps.None, bool, error) {
		defer close(back)
		<-release
		return steps.None{}, true, nil
	}).Timeout(time.Millisecond)
	o := newSaga(t, saga.Define("op", saga.NoResult[order], a), memory.New(), saga.WithLease(10*time.Millisecond))
	for range 2 {
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrInterrupted)
	}
	close(release)
	<-back
	require.Eventually(t, func() bool {
		_, err := o.Run(t.Context(), theKey, theOrder)
		return !errors.Is(err, saga.ErrInProgress)
	}, 10*time.Second, time.Millisecond)
}

// lateTakeUp answers its first Commit once the test says so.
type lateTakeUp struct {
	state.Store
	made, answer chan struct{}
}

func (s *lateTakeUp) Commit(ctx context.Context, ch *state.Change) error {
	err := s.Store.Commit(ctx, ch)
	if s.made != nil {
		close(s.made)
		<-s.answer
		s.made = nil
	}
	return err
}

// A take-up whose answer comes when its lease is over: another worker has the run by then. No function may start, and a
// Probe neither: its "no" may close the key under which the other one's call is on its way.
func TestNoProbeStartsOnALeaseThatIsOver(t *testing.T) {
	store, probed := memory.New(), 0
	def := saga.Define("op", saga.NoResult[order], flaky(func(context.Context, *orderRun) (steps.None, bool, error) {
		probed++
		return steps.None{}, false, nil
	}))
	const lease = 20 * time.Millisecond
	o := newSaga(t, def, store, saga.WithLease(lease))
	_, err := o.Run(t.Context(), theKey, theOrder)
	require.ErrorIs(t, err, saga.ErrInterrupted)
	late := &lateTakeUp{store, make(chan struct{}), make(chan struct{})}
	made, done := late.made, make(chan error, 1)
	second := newSaga(t, def, late, saga.WithLease(lease))
	go func() {
		_, err := second.Run(t.Context(), theKey, theOrder)
		done <- err
	}()
	<-made
	require.Eventually(t, func() bool {
		_, err := o.Run(t.Context(), theKey, theOrder)
		return err == nil
	}, 10*time.Second, time.Millisecond, "the other one takes over and completes the run")
	asked := probed
	close(late.answer)
	require.ErrorIs(t, <-done, saga.ErrLeaseLost)
	assert.Equal(t, asked, probed)
}

// The write that renews the lease before a Probe: its answer may be lost, it may fail, and the process may die before it or
// after it. Nobody asks before it is known to be made, and the run ends in any case.
func TestTheRenewalBeforeAProbe(t *testing.T) {
	down := errors.New("down")
	for name, tc := range map[string]struct {
		fault  func(*sagatest.FaultyStore)
		asks   int // of the call that meets the fault
		fulfil bool
	}{
		"the answer is lost":        {func(s *sagatest.FaultyStore) { s.On(sagatest.Heartbeats, sagatest.LoseAnswer()) }, 1, true},
		"it fails at first":         {func(s *sagatest.FaultyStore) { s.On(sagatest.Heartbeats, sagatest.Fail(down)) }, 1, true},
		"it stays in doubt":         {func(s *sagatest.FaultyStore) { s.Always(sagatest.Heartbeats, sagatest.LoseAnswer()) }, 0, false},
		"the store stays down":      {func(s *sagatest.FaultyStore) { s.Always(sagatest.Heartbeats, sagatest.Fail(down)) }, 0, false},
		"the process dies before":   {func(s *sagatest.FaultyStore) { s.On(sagatest.Heartbeats, sagatest.Before(s.Die)) }, 0, false},
		"the process dies after it": {func(s *sagatest.FaultyStore) { s.On(sagatest.Heartbeats, sagatest.After(s.Die)) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			clk, store, probed := new(sagatest.Clock), memory.New(), 0
			clk.AutoAdvance()
			def := saga.Define("op", saga.NoResult[order], flaky(func(context.Context, *orderRun) (steps.None, bool, error) {
				probed++
				return steps.None{}, true, nil
			}))
			o := newSaga(t, def, store, saga.WithClock(clk))
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.ErrorIs(t, err, saga.ErrInterrupted)
			faulty := sagatest.NewFaultyStore(store)
			faulty.On(sagatest.TakesUp, sagatest.After(func() { clk.Advance(saga.DefaultLease + time.Second) }))
			tc.fault(faulty)
			_, err = newSaga(t, def, faulty, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
			assert.Equal(t, tc.asks, probed)
			assert.NotEmpty(t, faulty.Calls(sagatest.Heartbeats), "the write in question")
			if tc.fulfil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, saga.ErrInterrupted)
			clk.Advance(saga.DefaultLease + time.Second)
			_, err = o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			assert.Equal(t, 1, probed)
		})
	}
}

// A message that can't be emitted is a permanent failure with the step unknown, whoever emits it.
func TestInvalidMessagesOfProbesAndCompensations(t *testing.T) {
	bad := func(_ context.Context, r *orderRun) (steps.None, bool, error) {
		r.Emit(outbox.Message{})
		return steps.None{}, true, nil
	}
	no := steps.Do("b", func(context.Context, *orderRun) error { return steps.Permanent(errors.New("no")) })
	lost := steps.Do("b", func(context.Context, *orderRun) error { return errors.New("no answer") }).AtMostOnce().Probe(bad)
	undo := func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
		r.Emit(outbox.Message{})
		return nil
	}
	unknown := steps.Do("a", func(context.Context, *orderRun) error { return errors.New("no answer") }).Retry(steps.RetryPolicy{PerRun: 1}).
		MaxAttempts(1).Probe(bad).Compensate(undo)
	for name, tc := range map[string]struct {
		kind  error
		steps []steps.Declared[order]
	}{
		"a Probe on the way forward":      {saga.ErrFailed, []steps.Declared[order]{flaky(bad)}},
		"a Probe of an at-most-once step": {saga.ErrBlocked, []steps.Declared[order]{lost}},
		"a Probe on the way back":         {saga.ErrBlocked, []steps.Declared[order]{unknown}},
		"a compensation":                  {saga.ErrBlocked, []steps.Declared[order]{steps.Do("a", func(context.Context, *orderRun) error { return nil }).Compensate(undo), no}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newSaga(t, saga.Define("op", saga.NoResult[order], tc.steps...), memory.New())
			_, err := o.Run(t.Context(), theKey, theOrder)
			if errors.Is(err, saga.ErrInterrupted) {
				_, err = o.Run(t.Context(), theKey, theOrder)
			}
			assert.Equal(t, saga.CodeInvalidMessage, sagaError(t, err, tc.kind).Code)
		})
	}
}

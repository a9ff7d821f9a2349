package saga_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// paused is a holder that stands still inside a function of s2 while another one takes the run over.
type paused struct {
	t      *testing.T
	p      *participant
	open   func() state.Store
	mine   *clock.Fake   // of the paused holder
	inside chan struct{} // closed once it is in the function
	goOn   chan struct{}
	lost   atomic.Int32
	cause  error // why the function's context had ended when it went on
	ended  chan error
}

func newPaused(t *testing.T, open func() state.Store) *paused {
	s := &paused{t: t, p: new(participant), open: open, mine: new(clock.Fake), inside: make(chan struct{}), goOn: make(chan struct{}), ended: make(chan error, 1)}
	s.mine.Set(time.Now())
	return s
}

// stop is a hook that stands still.
func (s *paused) stop(ctx context.Context, r *orderRun) error {
	r.Emit(outbox.Message{Topic: "never-due", Body: "from a holder that has lost the run"})
	close(s.inside)
	<-s.goOn
	s.cause = context.Cause(ctx)
	return ctx.Err()
}

// start runs c in the holder that will pause.
func (s *paused) start(c chain) {
	o := newSaga(s.t, c.of(3), s.open(), saga.WithClock(s.mine), saga.WithListener(saga.Listener{
		LeaseLost: func(context.Context, saga.RunEvent) { s.lost.Add(1) },
	}))
	go func() { _, err := o.Run(s.t.Context(), theKey, theOrder); s.ended <- err }()
	<-s.inside
}

// other takes the run over a lease later and brings it to its end.
func (s *paused) other(c chain) ([]string, error) {
	var theirs clock.Fake
	theirs.Set(s.mine.Now().Add(saga.DefaultLease + time.Second))
	theirs.AutoAdvance()
	return newSaga(s.t, c.of(3), s.open(), saga.WithClock(&theirs)).Run(s.t.Context(), theKey, theOrder)
}

// records is what is stored, for comparison.
func (s *paused) record() *state.Record { return recordOf(s.t, s.open(), theKey, "chain") }

// requireLost lets the paused holder go on, and checks that it has recorded nothing and called nothing more.
func (s *paused) requireLost(before *state.Record) {
	s.t.Helper()
	calls := len(s.p.all())
	close(s.goOn)
	err := <-s.ended
	require.Positive(s.t, sagaError(s.t, err, saga.ErrLeaseLost).RetryAfter)
	require.Equal(s.t, before, s.record())
	require.Len(s.t, s.p.all(), calls)
	require.EqualValues(s.t, 1, s.lost.Load())
	require.Empty(s.t, before.Outbox.Messages)
}

// awaken moves the paused holder's clock until the context of its function has ended.
func (s *paused) awaken(d time.Duration, ended func() bool) {
	s.t.Helper()
	s.mine.Advance(d)
	require.Eventually(s.t, func() bool {
		s.mine.Advance(saga.DefaultLease / 100)
		return ended()
	}, 10*time.Second, time.Millisecond)
}

// The holder stands still beyond its lease while another finishes. What its function returns then is not recorded.
func TestAHolderPausedBeyondItsLeaseRecordsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		s := newPaused(t, open)
		s.start(chain{p: s.p, after: at("s2", s.stop)})
		got, err := s.other(chain{p: s.p})
		require.NoError(t, err)
		require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, got)
		s.requireLost(s.record())
		require.NoError(t, s.cause, "it never heard of it")
		require.Equal(t, []string{"s1", "s2", "s2", "s3"}, s.p.seen())
	})
}

// The other holder need not have finished: having taken the run up is enough.
func TestAHolderPausedBeyondItsLeaseRecordsNothingWhileAnotherIsAtWork(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		s := newPaused(t, open)
		s.start(chain{p: s.p, after: at("s2", s.stop)})
		_, err := s.other(chain{p: s.p, before: at("s2", func(context.Context, *orderRun) error {
			s.requireLost(s.record())
			return nil
		})})
		require.NoError(t, err)
	})
}

// It wakes up, finds that its lease has passed, and ends its function's context. The write behind that is refused.
func TestAHolderThatWakesUpBeyondItsLeaseEndsItsFunction(t *testing.T) {
	for name, wake := range map[string]time.Duration{
		"its lease has ended":      2 * saga.DefaultLease, // so it does not even ask
		"its heartbeat is refused": saga.DefaultLease * 2 / 5,
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				s := newPaused(t, open)
				var ctx atomic.Pointer[context.Context]
				s.start(chain{p: s.p, after: at("s2", func(c context.Context, r *orderRun) error {
					ctx.Store(&c)
					return s.stop(c, r)
				})})
				_, err := s.other(chain{p: s.p})
				require.NoError(t, err)
				before := s.record()
				s.awaken(wake, func() bool { return (*ctx.Load()).Err() != nil })
				s.requireLost(before)
				require.Error(t, s.cause)
				require.Equal(t, wake < saga.DefaultLease, errors.Is(s.cause, saga.ErrLeaseLost), "%v", s.cause)
			})
		})
	}
}

// A function that ignores the end of its context is not waited for long by a holder that has lost the run, and the
// caller is told what happened.
func TestAHolderThatLostTheRunLeavesAFunctionThatIgnoresItsContext(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		s := newPaused(t, open)
		var ctx atomic.Pointer[context.Context]
		s.start(chain{p: s.p, after: at("s2", func(c context.Context, r *orderRun) error {
			ctx.Store(&c)
			return s.stop(context.WithoutCancel(c), r)
		})})
		_, err := s.other(chain{p: s.p})
		require.NoError(t, err)
		before := s.record()
		s.awaken(saga.DefaultLease*2/5, func() bool { return (*ctx.Load()).Err() != nil })
		require.Eventually(t, func() bool {
			s.mine.Advance(time.Second)
			return len(s.ended) == 1
		}, 10*time.Second, time.Millisecond)
		s.requireLost(before)
	})
}

// The same on the way back.
func TestAHolderPausedInAnUndoRecordsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		s := newPaused(t, open)
		fails := at("s3", failing(steps.Permanent(errRefuse)))
		s.start(chain{p: s.p, before: fails, afterUndo: at("s2", s.stop)})
		_, err := s.other(chain{p: s.p, before: fails})
		sagaError(t, err, saga.ErrFailed)
		s.requireLost(s.record())
		require.Equal(t, []string{"s1", "s2", "undo s2 known", "undo s2 known", "undo s1 known"}, s.p.seen())
	})
}

// A holder that is slow, but whose heartbeats get through, keeps the run for as long as it likes.
func TestHeartbeatsKeepTheLeaseOfALongStep(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		store := open()
		get := func() *state.Record { return recordOf(t, store, theKey, "chain") }
		var o *saga.Orchestrator[order, []string]
		d := chain{p: p, after: at("s2", func(ctx context.Context, _ *orderRun) error {
			end := clk.Now().Add(3 * saga.DefaultLease)
			for clk.Now().Before(end) {
				renewed(t, clk, get, get())
				require.NoError(t, ctx.Err())
				_, err := o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInProgress)
			}
			return nil
		})}.of(3)
		o = newSaga(t, d, store, saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1", "s2", "s3"}, p.seen())
		require.Equal(t, 1, get().Runs)
	})
}

// silentStore never answers a commit; it gives up with the context alone.
type silentStore struct {
	state.Store
	asked chan struct{}
}

func (s *silentStore) Commit(ctx context.Context, _ *state.Change) error {
	s.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// A store that never answers does not hold the caller for ever: a lease and a bit later the run is left to lapse.
func TestAStoreThatNeverAnswersIsGivenUp(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		store := &silentStore{open(), make(chan struct{}, 1)}
		o := newSaga(t, chain{p: p}.of(3), store, saga.WithClock(clk))
		ended := make(chan error, 1)
		go func() { _, err := o.Run(t.Context(), theKey, theOrder); ended <- err }()
		<-store.asked
		require.Eventually(t, func() bool {
			clk.Advance(saga.DefaultLease / 20)
			return len(ended) == 1
		}, 10*time.Second, time.Millisecond)
		err := <-ended
		sagaError(t, err, saga.ErrInterrupted)
		require.ErrorIs(t, err, saga.ErrStore)

		lapse(clk)
		got, err := newSaga(t, chain{p: p}.of(3), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, got)
		require.Equal(t, []string{"s1", "s1", "s2", "s3"}, p.seen())
	})
}

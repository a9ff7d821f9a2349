package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A call that waits for another holder gets what came of its work, and goes on itself when that stopped.
func TestWaitForAnotherHolder(t *testing.T) {
	for name, c := range map[string]struct {
		ends  error // of the holder's second step
		kind  error // what the waiting call gets
		calls []string
		info  saga.RunInfo
	}{
		"completed":   {nil, nil, []string{"s1", "s2"}, saga.RunInfo{Replayed: true, Status: state.StatusCompleted, Runs: 1}},
		"failed":      {steps.Permanent(errRefuse), saga.ErrFailed, []string{"s1", "s2", "undo s1 known"}, saga.RunInfo{Replayed: true, Status: state.StatusFailed, Runs: 1}},
		"interrupted": {errBusy, nil, []string{"s1", "s2", "s2"}, saga.RunInfo{Resumed: true, Status: state.StatusCompleted, Runs: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				s := newStop(t)
				a := newProcess(t, world, store, chain{p: p, after: at("s2", func(ctx context.Context, r *orderRun) error {
					s.here()
					return c.ends
				})}.of(2))
				first := goRun(t.Context(), a.o)
				within(t, s.reached)
				b := newProcess(t, world, store, chain{p: p}.of(2))
				b.net.On(sagatest.Nth("Get", 3), sagatest.Before(func() { // it has looked twice already
					s.release()
					within(t, first)
				}))
				var info saga.RunInfo
				began := b.clk.Mono()
				_, err := b.o.Run(t.Context(), theKey, theOrder, saga.Wait(10*time.Second), saga.Report(&info))
				if c.kind == nil {
					require.NoError(t, err)
				} else {
					sagaError(t, err, c.kind)
				}
				require.Equal(t, c.calls, p.seen())
				require.Equal(t, c.info, info)
				require.Less(t, b.clk.Mono()-began, 10*time.Second)
			})
		})
	}
}

// The wait ends with its time, or with the caller's patience, and says how the run stood.
func TestTheEndOfAWait(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		s := newStop(t)
		a := newProcess(t, world, store, chain{p: p, before: s.hook}.of(1))
		first := goRun(t.Context(), a.o)
		within(t, s.reached)
		b := newProcess(t, world, store, chain{p: p}.of(1))
		began := b.clk.Mono()
		_, err := b.o.Run(t.Context(), theKey, theOrder, saga.Wait(3*time.Second))
		e := sagaError(t, err, saga.ErrInProgress)
		require.Equal(t, "s1", e.Step)
		require.Positive(t, e.RetryAfter)
		require.Equal(t, 3*time.Second, b.clk.Mono()-began)
		for _, wait := range []time.Duration{0, -time.Second} {
			began = b.clk.Mono()
			_, err = b.o.Run(t.Context(), theKey, theOrder, saga.Wait(wait))
			sagaError(t, err, saga.ErrInProgress)
			require.Equal(t, began, b.clk.Mono())
		}
		ctx, cancel := context.WithCancel(t.Context())
		gets := len(b.net.Calls(sagatest.Method("Get")))
		b.net.On(sagatest.Nth("Get", gets+2), sagatest.After(cancel))
		_, err = b.o.Run(ctx, theKey, theOrder, saga.Wait(time.Hour))
		sagaError(t, err, saga.ErrInProgress)
		s.release()
		require.NoError(t, within(t, first).err)
	})
}

// A holder that dies while it is waited for is followed as soon as its lease is over.
func TestAWaitOutlivesADeadHolder(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		var a *process[order, []string]
		a = newProcess(t, world, store, chain{p: p, after: at("s1", func(context.Context, *orderRun) error { a.net.Die(); return nil })}.of(2))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)
		b := newProcess(t, world, store, chain{p: p}.of(2))
		var info saga.RunInfo
		out, err := b.o.Run(t.Context(), theKey, theOrder, saga.Wait(time.Minute), saga.Report(&info))
		require.NoError(t, err)
		require.Equal(t, []string{"s1-1", "s2-2"}, out)
		require.Equal(t, saga.RunInfo{Resumed: true, Status: state.StatusCompleted, Runs: 2}, info)
		require.InDelta(t, saga.DefaultLease, b.clk.Mono(), float64(time.Second))
	})
}

// What Report says of each way that a call may go, errors included.
func TestReport(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		busy := true
		a := newProcess(t, world, store, chain{p: p, before: at("s2", func(context.Context, *orderRun) error {
			if busy {
				return errBusy
			}
			return nil
		})}.of(2))
		info := saga.RunInfo{Runs: 99}
		run := func(in order, key saga.Key) error {
			_, err := a.o.Run(t.Context(), key, in, saga.Report(&info), nil)
			return err
		}
		sagaError(t, run(theOrder, theKey), saga.ErrInterrupted)
		require.Equal(t, saga.RunInfo{Status: state.StatusInterrupted, Runs: 1}, info)
		busy = false
		require.NoError(t, run(theOrder, theKey))
		require.Equal(t, saga.RunInfo{Resumed: true, Status: state.StatusCompleted, Runs: 2}, info)
		require.NoError(t, run(theOrder, theKey))
		require.Equal(t, saga.RunInfo{Replayed: true, Resumed: true, Status: state.StatusCompleted, Runs: 2}, info)
		sagaError(t, run(order{"another", 1}, theKey), saga.ErrPayloadMismatch)
		require.False(t, info.Replayed, "nothing was returned")
		a.net.Always(sagatest.Method("Create"), sagatest.Fail(errors.New("down")))
		sagaError(t, run(theOrder, saga.Key{ID: "2"}), saga.ErrStore)
		require.Zero(t, info)
		info.Runs = 99
		sagaError(t, run(theOrder, saga.Key{}), saga.ErrInvalidKey)
		require.Zero(t, info)
	})
}

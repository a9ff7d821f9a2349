package saga_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// errLeft is why these callers go.
var errLeft = errors.New("the caller has left")

// The caller goes at every moment of a run, in the middle of writes and calls: the run is laid down, nobody waits for a
// lease, and the same key completes it; what was recorded is not called again.
func TestTheCallerGoesAtEveryMoment(t *testing.T) {
	for _, m := range moments() {
		t.Run(m.String(), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				ctx, cancel := context.WithCancelCause(t.Context())
				var a *process[order, []string]
				c := chain{p: p}
				script := m.plant(&c, func() *sagatest.FaultyStore { return a.net }, func() { cancel(errLeft) })
				a = newProcess(t, world, store, c.of(3))
				script()
				want := []string{"s1-1", "s2-2", "s3-3"}
				out, err := a.o.Run(ctx, theKey, theOrder)
				rec := recordOf(t, store, theKey, "chain")
				switch {
				case err == nil: // it came with the last write
					require.Equal(t, want, out)
					require.Equal(t, state.StatusCompleted, rec.Status)
				case m.lost && m.write == 1: // nobody knew whether there was a run
					sagaError(t, err, saga.ErrInterrupted)
					require.ErrorIs(t, err, saga.ErrStore)
					require.ErrorIs(t, err, errLeft)
					require.Equal(t, state.StatusInProgress, rec.Status)
				default:
					sagaError(t, err, saga.ErrInterrupted)
					require.ErrorIs(t, err, errLeft)
					require.Equal(t, state.StatusInterrupted, rec.Status)
					require.Empty(t, rec.Owner)
				}
				b := newProcess(t, world, store, chain{p: p}.of(3))
				if rec.Status == state.StatusInProgress {
					b.clk.Advance(theLease)
				}
				out, err = b.o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, want, out)
				require.Equal(t, []string{"s1", "s2", "s3"}, p.seen(), "no step minds its caller here, so none is called twice")
			})
		})
	}
}

// The store does not answer, and the caller goes: nothing ran, and the caller is told both.
func TestTheCallerGoesWhileTheStoreHangs(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		for method, call := range map[string]func(ctx context.Context, o *saga.Orchestrator[order, []string]) error{
			"Create": func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
				return second(o.Run(ctx, theKey, theOrder))
			},
			"Get": func(ctx context.Context, o *saga.Orchestrator[order, []string]) error {
				return second(o.Resume(ctx, theKey))
			},
		} {
			p := new(participant)
			a := newProcess(t, world, store, chain{p: p}.of(1))
			ctx, cancel := context.WithCancelCause(t.Context())
			a.net.Always(sagatest.Method(method), func(ctx context.Context, c sagatest.StoreCall, send func(context.Context) error) error {
				cancel(errLeft)
				return sagatest.Hang()(ctx, c, send)
			})
			err := call(ctx, a.o)
			sagaError(t, err, saga.ErrInterrupted)
			require.ErrorIs(t, err, saga.ErrStore)
			require.ErrorIs(t, err, errLeft)
			require.Empty(t, p.seen())
		}
	})
}

// A store that is down runs nothing, whatever is asked of it, and what it says is passed on.
func TestAStoreThatIsDownRunsNothing(t *testing.T) {
	down := errors.New("down")
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		bringTo(t, world, store, "COMPENSATING")
		a := newProcess(t, world, store, chain{p: p}.of(2))
		before := recordOf(t, store, theKey, "chain")
		for name, call := range map[string]func(ctx context.Context, key saga.Key) error{
			"run":     func(ctx context.Context, key saga.Key) error { return second(a.o.Run(ctx, key, theOrder)) },
			"resume":  func(ctx context.Context, key saga.Key) error { return second(a.o.Resume(ctx, key)) },
			"get":     func(ctx context.Context, key saga.Key) error { return second(a.o.Get(ctx, key)) },
			"cancel":  func(ctx context.Context, key saga.Key) error { return a.o.Cancel(ctx, key, "no") },
			"reverse": func(ctx context.Context, key saga.Key) error { return a.o.Reverse(ctx, key, "no") },
			"recover": func(ctx context.Context, _ saga.Key) error { return second(saga.Recover(ctx, a.o)) },
		} {
			a.net.Always(func(sagatest.StoreCall) bool { return true }, sagatest.Fail(down))
			for _, key := range []saga.Key{theKey, {ID: "new"}} {
				err := call(t.Context(), key)
				require.ErrorIs(t, err, saga.ErrStore, name)
				require.ErrorIs(t, err, down, name)
			}
			a.net.Clear()
		}
		require.Empty(t, p.seen())
		require.Equal(t, before, recordOf(t, store, theKey, "chain"))
	})
}

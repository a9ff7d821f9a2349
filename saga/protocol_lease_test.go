package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// A write that has to be sent again carries the lease of its first sending, and that is how long the holder may act: the
// context of its step ends before others may take over. Played for each kind of write that brings a lease.
func TestALeaseCountsFromTheFirstSending(t *testing.T) {
	const slow = 20 * time.Second
	for name, c := range map[string]struct {
		step  string // that is at hand when the lease runs out
		write sagatest.Match
		taken bool // the run is taken up, not created
	}{
		"create":         {"s1", sagatest.Method("Create"), false},
		"take-up":        {"s1", sagatest.TakesUp, true},
		"a step's write": {"s2", sagatest.Records("s1", state.StepDone), false},
	} {
		for beat, fault := range map[string]sagatest.Fault{"fail": sagatest.Fail(sagatest.ErrNoAnswer), "hang": sagatest.Hang()} {
			t.Run(name+", heartbeats "+beat, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					if c.taken {
						first := newProcess(t, world, store, chain{p: new(participant), before: failing(sagatest.ErrNoAnswer)}.of(2))
						_, err := first.o.Run(t.Context(), theKey, theOrder)
						sagaError(t, err, saga.ErrInterrupted)
					}
					reached, ended := make(chan struct{}), make(chan error, 1)
					var a *process[order, []string]
					a = newProcess(t, world, store, chain{p: p, before: at(c.step, func(ctx context.Context, _ *orderRun) error {
						close(reached)
						<-ctx.Done()
						a.net.Clear()
						ended <- context.Cause(ctx)
						return ctx.Err()
					})}.of(2))
					a.net.Always(sagatest.Heartbeats, fault)
					a.net.On(c.write, func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
						_ = send(ctx)
						a.clk.Advance(slow)
						return sagatest.ErrNoAnswer
					})
					got := goRun(t.Context(), a.o)
					within(t, reached)
					rec := recordOf(t, store, theKey, "chain")
					require.Eventually(t, func() bool {
						if !rec.LeaseLive(a.clk.Now()) {
							return true // others may take over from here on
						}
						a.clk.Advance(500 * time.Millisecond)
						select {
						case err := <-ended:
							ended <- err
							return true
						case <-time.After(5 * time.Millisecond):
							return false
						}
					}, 20*time.Second, time.Millisecond)
					require.True(t, rec.LeaseLive(a.clk.Now()), "the stored lease has ended, and the step's context has not")
					_ = within(t, ended)
					sagaError(t, within(t, got).err, saga.ErrInterrupted)
				})
			})
		}
	}
}

package saga_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A probe on the way back outlasts its holder's lease, and another holder undoes the step meanwhile: the compensation does
// not start a second time. The crash lab found it.
func TestACompensationDoesNotStartBehindAProbeThatOutlastedTheLease(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		var slow func()
		of := func(asked func()) *saga.Definition[order, []string] {
			return chain{p: p, before: failing(context.DeadlineExceeded), declare: func(_ int, s *steps.Step[order, voucher]) {
				s.Probe(func(context.Context, *orderRun) (voucher, bool, error) { asked(); return voucher{}, false, nil })
			}}.of(1)
		}
		_, err := newProcess(t, world, store, of(func() {})).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.NoError(t, store.RequestCancel(t.Context(), recordOf(t, store, theKey, "chain").Key, state.CancelRequest{Reason: "why not"}))

		a := newProcess(t, world, store, of(func() { slow() }))
		slow = func() {
			b := newProcess(t, world, store, of(func() {}))
			b.clk.Advance(2 * saga.DefaultLease)
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrFailed)
			a.clk.Advance(2*saga.DefaultLease + time.Second)
		}
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrLeaseLost)
		require.Equal(t, []string{"undo s1 unknown"}, p.seen())
	})
}

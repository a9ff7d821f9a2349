package saga_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// forgetful is a store that has lost the inputs of its runs, and says so with what it still has.
type forgetful struct{ state.Store }

func (f forgetful) lost(rec *state.Record, err error) (*state.Record, error) {
	if err != nil || rec == nil {
		return rec, err
	}
	rec.Input = nil
	return rec, fmt.Errorf("run %s: the input is lost: %w", rec.Key, state.ErrCorrupt)
}

func (f forgetful) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	return f.lost(f.Store.Create(ctx, rec))
}

func (f forgetful) Get(ctx context.Context, key string) (*state.Record, error) {
	return f.lost(f.Store.Get(ctx, key))
}

func TestARunWhosePayloadIsLostIsBlocked(t *testing.T) {
	for name, again := range map[string]func(context.Context, *saga.Orchestrator[order, steps.None]) error{
		"run": func(ctx context.Context, o *saga.Orchestrator[order, steps.None]) error {
			_, err := o.Run(ctx, theKey, theOrder)
			return err
		},
		"resume": func(ctx context.Context, o *saga.Orchestrator[order, steps.None]) error {
			_, err := o.Resume(ctx, theKey)
			return err
		},
	} {
		for direction, way := range map[string]struct {
			first error // of the second step
			kind  error
		}{"forward": {fmt.Errorf("busy"), saga.ErrInterrupted}, "backward": {steps.Permanent(fmt.Errorf("no")), saga.ErrInterrupted}} {
			t.Run(name+"/"+direction, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					calls := 0
					store := open()
					one := steps.Do("one", func(context.Context, *orderRun) error { calls++; return nil }).
						Compensate(func(context.Context, *orderRun, steps.Outcome[steps.None]) error { calls++; return fmt.Errorf("busy") })
					two := steps.Do("two", func(context.Context, *orderRun) error { return way.first })
					d := saga.Define("loses", saga.NoResult, one, two)
					_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
					require.ErrorIs(t, err, way.kind)
					before := calls

					blind := newSaga(t, d, forgetful{store}, saga.WithClock(clk))
					require.Equal(t, saga.CodePayloadLost, sagaError(t, again(t.Context(), blind), saga.ErrBlocked).Code)
					require.Equal(t, before, calls)
					rec := recordOf(t, store, theKey, "loses")
					require.Equal(t, state.StatusBlocked, rec.Status)
					require.True(t, rec.LeaseUntil.IsZero())
				})
			})
		}
	}
}

package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// leaseSeen is a saga whose step looks at the lease of its own run, and fails as it is told.
func leaseSeen(t *testing.T, store state.Store, seen *[]time.Duration, err *error) *saga.Orchestrator[int, int] {
	t.Helper()
	o, problem := saga.New(saga.Once("lease", func(ctx context.Context, r *steps.Run[int]) (int, error) {
		rec, problem := store.Get(ctx, r.Key().String())
		if problem != nil {
			return 0, problem
		}
		*seen = append(*seen, rec.LeaseUntil.Sub(rec.UpdatedAt))
		return r.Input, *err
	}), store, saga.WithLease(20*time.Second), saga.WithRetry(steps.RetryPolicy{PerRun: 1}))
	require.NoError(t, problem)
	return o
}

func TestLeaseAtMostBoundsTheLeaseOfOneCall(t *testing.T) {
	for name, tc := range map[string]struct{ most, want time.Duration }{
		"shorter":  {1500 * time.Millisecond, 1500 * time.Millisecond},
		"longer":   {time.Minute, 20 * time.Second},
		"zero":     {0, 10 * time.Millisecond},
		"negative": {-time.Second, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []time.Duration
			fails := errors.New("not now")
			o := leaseSeen(t, memory.New(), &seen, &fails)
			key := saga.Key{ID: "1"}
			_, err := o.Run(t.Context(), key, 7, saga.LeaseAtMost(tc.most))
			require.ErrorIs(t, err, saga.ErrInterrupted)
			_, err = o.Run(t.Context(), key, 7, saga.LeaseAtMost(tc.most))
			require.ErrorIs(t, err, saga.ErrInterrupted)
			fails = nil
			_, err = o.Run(t.Context(), key, 7)
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{tc.want, tc.want, 20 * time.Second}, seen, "created, taken up, and taken up without the option")
		})
	}
}

func TestAShortenedLeaseIsRenewedWhileAStepRuns(t *testing.T) {
	store := memory.New()
	o, err := saga.New(saga.Once("long", func(ctx context.Context, r *steps.Run[int]) (int, error) {
		first, err := store.Get(ctx, r.Key().String())
		if err != nil {
			return 0, err
		}
		for {
			rec, err := store.Get(ctx, r.Key().String())
			if err != nil {
				return 0, err
			}
			if rec.UpdatedAt.After(first.LeaseUntil) {
				return int(rec.LeaseUntil.Sub(rec.UpdatedAt) / time.Millisecond), nil
			}
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
	}), store)
	require.NoError(t, err)
	var info saga.RunInfo
	ms, err := o.Run(t.Context(), saga.Key{ID: "1"}, 7, saga.LeaseAtMost(300*time.Millisecond), saga.Report(&info))
	require.NoError(t, err)
	assert.Equal(t, 300, ms, "each renewal brings the same time")
	assert.Equal(t, 1, info.Runs, "nobody took it over")
}

package sagatest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func TestAClockOfItsZeroValueStandsStill(t *testing.T) {
	t.Parallel()
	var clk sagatest.Clock
	began := clk.Now()
	require.WithinDuration(t, time.Now(), began, time.Minute)
	require.Equal(t, began, clk.Now())
	clk.Advance(time.Hour)
	require.Equal(t, began.Add(time.Hour), clk.Now())
	clk.Set(began.Add(-time.Hour))
	require.Equal(t, began.Add(-time.Hour), clk.Now())
}

// A test moves time for an orchestrator and its store alike: waits, leases, retention.
func TestAClockMovesARun(t *testing.T) {
	t.Parallel()
	var clk sagatest.Clock
	clk.AutoAdvance()
	attempts := 0
	d := saga.Once("op", func(context.Context, *orderRun) (int, error) {
		if attempts++; attempts < 3 {
			return 0, errors.New("busy")
		}
		return attempts, nil
	}).Retention(time.Hour)
	began := clk.Now()
	o, err := saga.New(d, memory.New(memory.WithClock(&clk)), saga.WithClock(&clk), saga.WithRetry(steps.RetryPolicy{Initial: time.Second, Jitter: -1}))
	require.NoError(t, err)
	out, err := o.Run(t.Context(), key, anOrder)
	require.NoError(t, err)
	require.Equal(t, 3, out)
	require.Equal(t, began.Add(3*time.Second), clk.Now(), "the waits of 1 s and 2 s took no time")
	clk.Advance(time.Hour + time.Second)
	_, err = o.Get(t.Context(), key)
	require.ErrorIs(t, err, saga.ErrNotFound)
}

package steps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// waits are those between the attempts of a step that always fails for now, in one run.
func waits(t *testing.T, policy *steps.RetryPolicy, opts ...saga.Option) []time.Duration {
	t.Helper()
	clk := new(clock.Fake)
	clk.AutoAdvance()
	var out []time.Duration
	opts = append(opts, saga.WithClock(clk), saga.WithLease(24*time.Hour), saga.WithListener(saga.Listener{
		StepRetried: func(_ context.Context, ev saga.StepEvent) { out = append(out, ev.Wait) },
	}))
	calls := 0
	s := steps.Do("s", func(context.Context, *orderRun) error { calls++; return errBase })
	if policy != nil {
		s.Retry(*policy)
	}
	o, err := saga.New(saga.Define("op", saga.NoResult[order], s), memory.New(memory.WithClock(clk)), opts...)
	require.NoError(t, err)
	_, err = o.Run(t.Context(), saga.Key{ID: "1"}, order{})
	require.ErrorIs(t, err, saga.ErrInterrupted)
	require.Len(t, out, calls-1)
	return out
}

// The defaults that RetryPolicy documents: three attempts, about 100 ms and 200 ms apart, half of it more or less.
func TestTheDefaultsOfAPolicy(t *testing.T) {
	t.Parallel()
	for range 50 {
		for _, policy := range []*steps.RetryPolicy{nil, {}} {
			got := waits(t, policy)
			require.Len(t, got, 2)
			require.InDelta(t, 100*time.Millisecond, got[0], float64(50*time.Millisecond+1))
			require.InDelta(t, 200*time.Millisecond, got[1], float64(100*time.Millisecond+1))
		}
	}
	grown := waits(t, &steps.RetryPolicy{Jitter: -1, PerRun: 12})
	require.Equal(t, 100*time.Millisecond, grown[0])
	require.Equal(t, 6400*time.Millisecond, grown[6])
	require.Equal(t, 10*time.Second, grown[7], "the longest wait")
	require.Equal(t, 10*time.Second, grown[10])
}

// Zero fields are the defaults, one by one; a negative jitter is none.
func TestFieldsOfAPolicy(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		p    steps.RetryPolicy
		want []time.Duration
	}{
		"no retry":                      {steps.RetryPolicy{PerRun: 1, Jitter: -1}, nil},
		"Initial":                       {steps.RetryPolicy{Initial: 7 * ms, Jitter: -1}, []time.Duration{7 * ms, 14 * ms}},
		"Multiplier":                    {steps.RetryPolicy{Multiplier: 3, Jitter: -1, PerRun: 4}, []time.Duration{100 * ms, 300 * ms, 900 * ms}},
		"constant":                      {steps.RetryPolicy{Multiplier: 1, Jitter: -1, PerRun: 4}, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		"Max":                           {steps.RetryPolicy{Max: 150 * ms, Jitter: -1, PerRun: 4}, []time.Duration{100 * ms, 150 * ms, 150 * ms}},
		"Max below the default Initial": {steps.RetryPolicy{Max: 20 * ms, Jitter: -1}, []time.Duration{20 * ms, 20 * ms}},
		"Initial over the default Max":  {steps.RetryPolicy{Initial: time.Minute, Jitter: -1}, []time.Duration{time.Minute, time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, waits(t, &tc.p))
			require.Equal(t, tc.want, waits(t, nil, saga.WithRetry(tc.p)), "as the default of an orchestrator")
		})
	}
	require.Equal(t, []time.Duration{5 * ms, 10 * ms, 20 * ms},
		waits(t, &steps.RetryPolicy{Initial: 5 * ms}, saga.WithRetry(steps.RetryPolicy{Initial: time.Hour, Max: time.Hour, Jitter: -1, PerRun: 4})),
		"a step's policy takes its zero fields from the orchestrator's")
}

package saga_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A record that is full to the brim still takes what says how the run went on: whatever is left, no effect is repeated,
// and the run comes to an end.
func TestAFullRecordStillTakesWhatHappened(t *testing.T) {
	outcomes := map[string]int{} // by the step that failed
	for left := 0; left <= 2000; left += 20 {
		t.Run(fmt.Sprintf("%d bytes left", left), func(t *testing.T) {
			clk := new(clock.Fake)
			clk.AutoAdvance()
			p := new(participant)
			full := func(fill int) *saga.Definition[order, steps.None] {
				undo := func(_ context.Context, r *orderRun, did steps.Outcome[string]) error {
					p.undo(r.Step(), did.Known, r.IdempotencyKey())
					return nil
				}
				s1 := steps.New("s1", func(_ context.Context, r *orderRun) (string, error) {
					p.do("s1", r.IdempotencyKey())
					return strings.Repeat("x", fill), nil
				}).Compensate(undo)
				s2 := steps.New("s2", func(_ context.Context, r *orderRun) (string, error) {
					p.do("s2", r.IdempotencyKey())
					return strings.Repeat("y", 500), nil
				}).Compensate(undo)
				return saga.Define("full", saga.NoResult[order], s1, s2)
			}
			const limit = 10_000
			// How much there is without the filling.
			o := newSaga(t, full(0), memory.New(), saga.WithClock(clk))
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			rec, err := o.Get(t.Context(), theKey)
			require.NoError(t, err)
			p.calls = nil

			store := memory.New(memory.WithMaxRecord(limit), memory.WithClock(clk))
			o = newSaga(t, full(limit-rec.Size()+500-left), store, saga.WithClock(clk))
			_, first := o.Run(t.Context(), theKey, theOrder)
			lapse(clk)
			_, second := o.Run(t.Context(), theKey, theOrder)
			if first == nil {
				require.NoError(t, second)
				require.Equal(t, []string{"s1", "s2"}, p.seen())
				return
			}
			e := sagaError(t, first, saga.ErrFailed)
			require.Equal(t, saga.CodeUnrecordable, e.Code)
			require.Equal(t, e.Step, sagaError(t, second, saga.ErrFailed).Step)
			want := map[string][]string{
				"s1": {"s1", "undo s1 unknown"},
				"s2": {"s1", "s2", "undo s2 unknown", "undo s1 known"},
			}
			require.Equal(t, want[e.Step], p.seen())
			outcomes[e.Step]++
		})
	}
	require.Len(t, outcomes, 2, "the filling misses what it is for: %v", outcomes)
}

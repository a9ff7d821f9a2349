package saga_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// stuckPivot is s1, then a pivot s2 of which nobody knows whether it happened, and which may not be tried any more, then
// s3. Once mended, it goes through.
func stuckPivot(p *participant, mended *bool) *saga.Definition[order, []string] {
	c := chain{p: p, before: at("s2", func(ctx context.Context, r *orderRun) error {
		if *mended {
			return nil
		}
		return transient(ctx, r)
	})}
	c.declare = func(i int, s *steps.Step[order, voucher]) {
		if i == 1 {
			s.Pivot().MaxAttempts(2).Retry(steps.RetryPolicy{PerRun: 2})
		}
	}
	return c.of(three)
}

// A pivot that may have happened leaves no way back: the run is BLOCKED, and each verb leads out in its own way.
func TestVerbsLeadOutOfABlockedPivot(t *testing.T) {
	type orchestrator = *saga.Orchestrator[order, []string]
	for name, tc := range map[string]struct {
		verb  func(ctx context.Context, o orchestrator) error
		rests state.Status // after the verb
		want  []string     // calls behind those before
		got   []string
		ends  error
	}{
		"retry": {
			verb:  func(ctx context.Context, o orchestrator) error { return o.Retry(ctx, theKey, "it is up again") },
			rests: state.StatusInterrupted, want: []string{"s2", "s3"}, got: []string{"s1-1", "s2-2", "s3-3"},
		},
		"mark_done": {
			verb: func(ctx context.Context, o orchestrator) error {
				return o.MarkDone(ctx, theKey, "s2", voucher{"by hand"}, "it is in their books")
			},
			rests: state.StatusInterrupted, want: []string{"s3"}, got: []string{"s1-1", "by hand", "s3-2"},
		},
		"force_compensate": {
			verb:  func(ctx context.Context, o orchestrator) error { return o.ForceCompensate(ctx, theKey, "enough") },
			rests: state.StatusCompensating, want: []string{"undo s2 unknown", "undo s1 known"}, ends: saga.ErrFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store, mended := new(participant), open(), false
				o := newSaga(t, stuckPivot(p, &mended), store, saga.WithClock(clk))
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					e := sagaError(t, err, saga.ErrBlocked)
					require.Equal(t, "s2", e.Step)
					require.Equal(t, saga.CodeMaxAttempts, e.Code)
					require.ErrorContains(t, err, "no answer")
				}
				require.Equal(t, []string{"s1"}, p.seen())

				require.ErrorIs(t, o.MarkDone(t.Context(), theKey, "s2", "not a voucher", "x"), saga.ErrInvalidInput)
				require.ErrorIs(t, o.MarkDone(t.Context(), theKey, "s3", voucher{"x"}, "x"), saga.ErrNotAllowed)
				require.ErrorIs(t, o.MarkCompensated(t.Context(), theKey, "s2", "x"), saga.ErrNotAllowed)
				require.Empty(t, recordOf(t, store, theKey, "chain").Audit)

				mended = true
				require.NoError(t, tc.verb(saga.ActorContext(t.Context(), "ann"), o))
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, tc.rests, rec.Status)
				require.Equal(t, []string{"s1"}, p.seen(), "a verb runs nothing itself")
				require.Len(t, rec.Audit, 1)
				require.Equal(t, name, rec.Audit[0].Verb)
				require.Equal(t, "ann", rec.Audit[0].Actor)
				require.Equal(t, "s2", rec.Audit[0].Step)
				require.ErrorIs(t, o.Retry(t.Context(), theKey, "again"), saga.ErrNotAllowed, "it is not BLOCKED any more")

				got, err := o.Run(t.Context(), theKey, theOrder)
				if tc.ends == nil {
					require.NoError(t, err)
				} else {
					sagaError(t, err, tc.ends)
				}
				require.Equal(t, tc.got, got)
				require.Equal(t, append([]string{"s1"}, tc.want...), p.seen())
			})
		})
	}
}

// Two people at once: one verb is carried out, the other is told to look again.
func TestOfTwoVerbsAtOnceOneIsCarriedOut(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p, store, mended := new(participant), open(), false
		o := newSaga(t, stuckPivot(p, &mended), store, saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrBlocked)
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() { errs <- o.Retry(t.Context(), theKey, "me first") }()
		}
		done := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				done++
			} else {
				sagaError(t, err, saga.ErrNotAllowed)
			}
		}
		require.Equal(t, 1, done)
		require.Len(t, recordOf(t, store, theKey, "chain").Audit, 1)
	})
}

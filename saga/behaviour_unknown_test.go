package saga_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// attempts is a hook of s2 whose n-th attempt does the n-th thing, over all runs; behind the last, that one again.
func attempts(things ...func(ctx context.Context, r *orderRun) error) func(context.Context, *orderRun) error {
	n := 0
	return at("s2", func(ctx context.Context, r *orderRun) error {
		f := things[min(n, len(things)-1)]
		n++
		return f(ctx, r)
	})
}

func refused(context.Context, *orderRun) error   { return steps.Permanent(errRefuse) }
func transient(context.Context, *orderRun) error { return errors.New("no answer") }

const three = 3

// undoOfS2 is how s2 was undone: "known", "unknown", or not at all.
func undoOfS2(p *participant) string {
	how := "not at all"
	for _, c := range p.seen() {
		if word, ok := strings.CutPrefix(c, "undo s2 "); ok {
			if how != "not at all" {
				return "twice"
			}
			how = word
		}
	}
	return how
}

// A step is undone as unknown as soon as one attempt ended without a definite answer, and not at all when every one of
// them was refused for good.
func TestWhatIsUnknownIsUndoneAndWhatIsRefusedIsNot(t *testing.T) {
	do := func(things ...func(context.Context, *orderRun) error) []func(context.Context, *orderRun) error {
		return things
	}
	for name, tc := range map[string]struct {
		things []func(context.Context, *orderRun) error
		want   string
	}{
		"refused at once":        {do(refused), "not at all"},
		"an error, then refused": {do(transient, refused), "unknown"},
		"come back later, then refused": {do(func(context.Context, *orderRun) error {
			return steps.RetryAfter(time.Second, errors.New("not yet"))
		}, refused), "unknown"},
		"a panic, then refused":  {do(func(context.Context, *orderRun) error { panic("oh") }, refused), "unknown"},
		"a goexit, then refused": {do(func(context.Context, *orderRun) error { runtime.Goexit(); return nil }, refused), "unknown"},
		"a timeout, then refused": {do(func(ctx context.Context, _ *orderRun) error {
			<-ctx.Done()
			return ctx.Err()
		}, refused), "unknown"},
		"errors until MaxAttempts": {do(transient), "unknown"},
		"a result that can't be encoded": {do(func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "t", Body: make(chan int)}) // what it did is done, what it says can't be sent
			return nil
		}), "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() state.Store) {
				p := new(participant)
				c := chain{p: p, before: attempts(tc.things...)}
				c.declare = func(_ int, s *steps.Step[order, voucher]) {
					s.Retry(steps.RetryPolicy{Initial: time.Millisecond, PerRun: 3}).MaxAttempts(3).Timeout(50 * time.Millisecond)
				}
				o := newSaga(t, c.of(three), open())
				_, err := o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, "s2", sagaError(t, err, saga.ErrFailed).Step)
				require.Equal(t, tc.want, undoOfS2(p), "%v", p.seen())
				rec := recordOf(t, open(), theKey, "chain")
				require.Equal(t, state.StepCompensated, rec.Steps[0].Status)
				if tc.want == "not at all" {
					require.Equal(t, state.StepPending, rec.Steps[1].Status)
					require.False(t, rec.Steps[1].Unknown)
				} else {
					require.Equal(t, state.StepCompensated, rec.Steps[1].Status)
				}
			})
		})
	}
}

// What is known of a step is kept from one run to the next, and from one process to the next.
func TestTheUnknownIsRememberedFromRunToRun(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second func(context.Context, *orderRun) error
		want          string
	}{
		"an error in the first run, refused in the second":     {transient, refused, "unknown"},
		"interrupted by the caller, refused in the second":     {nil, refused, "unknown"},
		"refused in the first run: there is no second attempt": {refused, transient, "not at all"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := tc.first
				if first == nil {
					first = func(ctx context.Context, _ *orderRun) error { cancel(); <-ctx.Done(); return ctx.Err() }
				}
				_, err := newSaga(t, chain{p: p, before: attempts(first)}.of(three), open(), saga.WithClock(clk)).Run(ctx, theKey, theOrder)
				require.Error(t, err)
				_, err = newSaga(t, chain{p: p, before: attempts(tc.second)}.of(three), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrFailed)
				require.Equal(t, tc.want, undoOfS2(p))
			})
		})
	}
}

// What a compensation of an unknown step is given: no output, the key that its own call carried, and why.
func TestWhatACompensationOfAnUnknownStepIsGiven(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		var carried string
		var got []steps.Outcome[voucher]
		var keys []string
		var causes []error
		s1 := steps.New("s1", func(_ context.Context, r *orderRun) (voucher, error) {
			carried = r.IdempotencyKey()
			if r.Attempt() == 1 {
				return voucher{"lost on the way"}, errors.New("no answer")
			}
			return voucher{}, steps.Permanent(errRefuse)
		}).Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[voucher]) error {
			got, keys, causes = append(got, did), append(keys, r.IdempotencyKey()), append(causes, r.Cause())
			return nil
		}).Retry(steps.RetryPolicy{PerRun: 2})
		o := newSaga(t, saga.Define("op", saga.NoResult[order], s1), open(), saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, errRefuse)
		require.Equal(t, "t#op#1/s1", carried)
		require.Equal(t, []steps.Outcome[voucher]{{Key: "t#op#1/s1"}}, got)
		require.Equal(t, []string{"t#op#1/s1/compensate"}, keys)
		require.ErrorIs(t, causes[0], errRefuse)
	})
}

// An effect that nothing can undo is listed, done or unknown; one that has nothing to undo is not.
func TestWhatCannotBeUndoneIsListed(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p := new(participant)
		bare := func(name string) *steps.Step[order, voucher] {
			return steps.New(name, func(_ context.Context, r *orderRun) (voucher, error) { return p.do(r.Step(), r.IdempotencyKey()), nil })
		}
		tried := 0
		unknown := steps.Do("unknown", func(context.Context, *orderRun) error {
			if tried++; tried == 1 {
				return errors.New("no answer")
			}
			return steps.Permanent(errRefuse)
		}).Retry(steps.RetryPolicy{PerRun: 2})
		skipped := bare("skipped").When(func(*orderRun) bool { return false })
		undone := bare("undone").Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[voucher]) error {
			p.undo(r.Step(), did.Known, r.IdempotencyKey())
			return nil
		})
		o := newSaga(t, saga.Define("op", saga.NoResult[order], bare("done"), bare("nothing").NoCompensation(), undone, skipped, unknown, bare("never")),
			open(), saga.WithClock(clk))
		for range 2 {
			_, err := o.Run(t.Context(), theKey, theOrder)
			e := sagaError(t, err, saga.ErrFailed)
			require.Equal(t, []string{"done", "unknown"}, e.NotUndone)
			require.ErrorContains(t, err, "not undone: done, unknown")
		}
		rec := recordOf(t, open(), theKey, "op")
		require.Equal(t, []string{"done", "unknown"}, rec.Failure.NotUndone)
		require.Equal(t, "DONE DONE COMPENSATED SKIPPED PENDING PENDING", stepStatuses(rec))
		require.Equal(t, []string{"done", "nothing", "undone", "undo undone known"}, p.seen())
	})
}

// A charge made by a process that died is undone, although the next attempt is refused for good.
func TestADeathLeavesTheStepUnknown(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprintf("the effect was had: %v", made), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				dying := &mortal{Store: open()}
				kill := at("s2", func(context.Context, *orderRun) error { dying.kill(); return nil })
				c := chain{p: p, after: kill}
				if !made {
					c = chain{p: p, before: at("s2", func(context.Context, *orderRun) error { dying.kill(); return steps.Permanent(errRefuse) })}
				}
				_, err := newSaga(t, c.of(three), dying, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, err, errDead)
				lapse(clk)
				_, err = newSaga(t, chain{p: p, before: attempts(refused)}.of(three), open(), saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrFailed)
				require.Equal(t, "unknown", undoOfS2(p))
			})
		})
	}
}

package saga_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// stubborn is a value that JSON can't take.
type stubborn struct{ how string }

func (s stubborn) MarshalJSON() ([]byte, error) {
	switch s.how {
	case "panic":
		panic("no JSON from me")
	case "error":
		return nil, errors.New("no JSON from me")
	case "rubbish":
		return []byte("{"), nil
	}
	return []byte(`"one way only"`), nil
}

func (*stubborn) UnmarshalJSON([]byte) error { return errors.New("no way back") }

// outcast is a result that may be anything at all.
type outcast struct {
	Any      any
	Stubborn *stubborn `json:",omitempty"`
}

var unencodable = map[string]func(state.Store) outcast{
	"a channel":          func(state.Store) outcast { return outcast{Any: make(chan int)} },
	"not a number":       func(state.Store) outcast { return outcast{Any: math.NaN()} },
	"an error":           func(state.Store) outcast { return outcast{Stubborn: &stubborn{"error"}} },
	"a panic":            func(state.Store) outcast { return outcast{Stubborn: &stubborn{"panic"}} },
	"broken JSON":        func(state.Store) outcast { return outcast{Stubborn: &stubborn{"rubbish"}} },
	"can't be read back": func(state.Store) outcast { return outcast{Stubborn: &stubborn{}} },
	"too large":          func(s state.Store) outcast { return outcast{Any: oversized(s)} },
}

// oversized is a text that is too large for a record of this store.
func oversized(s state.Store) string {
	c := s.Capabilities()
	limit := c.MaxRecord
	if limit == 0 || c.MaxValue > 0 && c.MaxValue < limit {
		limit = c.MaxValue
	}
	return strings.Repeat("x", limit+1)
}

// badSaga is s1, then bad, whose result can't be recorded, then s3.
func badSaga(p *participant, bad outcast, declare func(s1, bad *steps.Step[order, outcast])) *saga.Definition[order, outcast] {
	undo := func(_ context.Context, r *orderRun, did steps.Outcome[outcast]) error {
		p.undo(r.Step(), did.Known, r.IdempotencyKey())
		return nil
	}
	step := func(name string, out outcast) *steps.Step[order, outcast] {
		return steps.New(name, func(_ context.Context, r *orderRun) (outcast, error) {
			p.do(r.Step(), r.IdempotencyKey())
			return out, nil
		})
	}
	s1, b, s3 := step("s1", outcast{}).Compensate(undo), step("bad", bad), step("s3", outcast{})
	declare(s1, b)
	if !isPivot(s1) && !isPivot(b) {
		b.Compensate(undo)
	}
	return saga.Define("op", func(_ context.Context, r *orderRun) (outcast, error) {
		got, _ := b.Lookup(r)
		return got, nil
	}, s1, b, s3)
}

func isPivot(s *steps.Step[order, outcast]) bool { return s.Snapshot().Pivot }

// The effect of a step whose result can't be recorded is never repeated. Before the pivot the run goes backwards, and
// the step is undone without its result.
func TestAResultThatCannotBeRecordedGoesBackwards(t *testing.T) {
	for name, bad := range unencodable {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				o := newSaga(t, badSaga(p, bad(store), func(_, _ *steps.Step[order, outcast]) {}), store, saga.WithClock(clk))
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					e := sagaError(t, err, saga.ErrFailed)
					require.Equal(t, "bad", e.Step)
					require.Equal(t, saga.CodeUnrecordable, e.Code)
					require.ErrorContains(t, err, "step bad")
				}
				require.Equal(t, []string{"s1", "bad", "undo bad unknown", "undo s1 known"}, p.seen())
				require.Equal(t, "COMPENSATED COMPENSATED PENDING", stepStatuses(recordOf(t, store, theKey, "op")))
			})
		})
	}
}

// From the pivot on it is BLOCKED, and a person says what the result was.
func TestAResultThatCannotBeRecordedBlocksFromThePivotOn(t *testing.T) {
	for where, declare := range map[string]func(s1, bad *steps.Step[order, outcast]){
		"the pivot itself": func(_, bad *steps.Step[order, outcast]) { bad.Pivot() },
		"behind the pivot": func(s1, _ *steps.Step[order, outcast]) { s1.Pivot() },
	} {
		for name, bad := range unencodable {
			t.Run(where+"/"+name, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					o := newSaga(t, badSaga(p, bad(store), declare), store, saga.WithClock(clk))
					for range 2 {
						_, err := o.Run(t.Context(), theKey, theOrder)
						e := sagaError(t, err, saga.ErrBlocked)
						require.Equal(t, "bad", e.Step)
						require.Equal(t, saga.CodeUnrecordable, e.Code)
					}
					require.Equal(t, []string{"s1", "bad"}, p.seen())
					rec := recordOf(t, store, theKey, "op")
					require.Equal(t, "DONE DONE PENDING", stepStatuses(rec))
					require.Nil(t, rec.Steps[1].Output)

					require.NoError(t, o.MarkDone(t.Context(), theKey, "bad", outcast{Any: "by hand"}, "looked it up"))
					got, err := o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					require.Equal(t, outcast{Any: "by hand"}, got)
					require.Equal(t, []string{"s1", "bad", "s3"}, p.seen())
				})
			})
		}
	}
}

// Or the run goes on without the result, for those who can do without.
func TestARunGoesOnWithoutTheResultThatCannotBeRecorded(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		asked := 0
		b := steps.New("bad", func(_ context.Context, r *orderRun) (any, error) {
			p.do("bad", r.IdempotencyKey())
			return make(chan int), nil
		}).Pivot()
		optional := steps.Do("optional", func(_ context.Context, r *orderRun) error { p.do("optional", r.IdempotencyKey()); return nil }).
			When(func(r *orderRun) bool {
				asked++
				_, ok := b.Lookup(r)
				return ok
			})
		o := newSaga(t, saga.Define("op", saga.NoResult[order], b, optional), store, saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrBlocked)
		require.NoError(t, o.Retry(t.Context(), theKey, "nobody needs it"))
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"bad"}, p.seen())
		require.Equal(t, 1, asked, "the When behind it is asked once the run goes on")
		require.Equal(t, "DONE SKIPPED", stepStatuses(recordOf(t, store, theKey, "op")))
	})
}

// When it is the run's own result that can't be recorded, the steps stay done, and only the result is worked out again.
func TestARunsResultThatCannotBeRecorded(t *testing.T) {
	for name, bad := range unencodable {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				out := bad(store)
				c := chain{p: p}
				s1 := steps.Do("s1", func(_ context.Context, r *orderRun) error { c.p.do("s1", r.IdempotencyKey()); return nil })
				o := newSaga(t, saga.Define("op", func(context.Context, *orderRun) (outcast, error) { return out, nil }, s1), store, saga.WithClock(clk))
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					e := sagaError(t, err, saga.ErrInterrupted)
					require.Empty(t, e.Step)
					require.ErrorContains(t, err, "op")
					rec := recordOf(t, store, theKey, "op")
					require.Equal(t, state.StatusInterrupted, rec.Status)
					require.Equal(t, "DONE", stepStatuses(rec))
				}
				out = outcast{Any: "mended"}
				got, err := o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, out, got)
				require.Equal(t, []string{"s1"}, p.seen())
			})
		})
	}
}

// Input that can't be recorded is refused before anything runs.
func TestInputThatCannotBeRecordedRunsNothing(t *testing.T) {
	for name, bad := range unencodable {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				store := open()
				d := saga.Once("op", func(context.Context, *steps.Run[outcast]) (int, error) {
					t.Error("it was called")
					return 0, nil
				})
				o := newSaga(t, d, store, saga.WithClock(clk))
				kind := saga.ErrInvalidInput
				if name == "too large" {
					kind = saga.ErrTooLarge
				}
				_, err := o.Run(t.Context(), theKey, bad(store))
				sagaError(t, err, kind)
				_, err = o.Get(t.Context(), theKey)
				require.ErrorIs(t, err, saga.ErrNotFound)
			})
		})
	}
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// small is a store whose records hold no more than n bytes.
func small(n int) state.Store { return memory.New(memory.WithMaxRecord(n)) }

// An input that is too large is refused, and nothing runs.
func TestAnInputThatIsTooLarge(t *testing.T) {
	p, store := new(participant), small(2000)
	o := newSaga(t, chain{p: p}.of(2), store)
	_, err := o.Run(t.Context(), theKey, order{No: strings.Repeat("x", 3000)})
	sagaError(t, err, saga.ErrTooLarge)
	require.Empty(t, p.seen())
	_, err = o.Get(t.Context(), theKey)
	sagaError(t, err, saga.ErrNotFound)
	_, err = o.Run(t.Context(), theKey, theOrder)
	require.NoError(t, err, "the key is still free")
}

// Messages that are too large make the step fail for good, unknown: what it did is done, and what it said can't be sent.
func TestMessagesThatAreTooLarge(t *testing.T) {
	for name, pivot := range map[string]bool{"before the pivot": false, "the pivot": true} {
		t.Run(name, func(t *testing.T) {
			p, store := new(participant), small(4000)
			d := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
				if i == 1 && pivot {
					s.Pivot()
				}
			}, after: at("s2", func(_ context.Context, r *orderRun) error {
				r.Emit(outbox.Message{Topic: "t", Body: strings.Repeat("x", 5000)})
				return nil
			})}.of(3)
			_, err := newSaga(t, d, store).Run(t.Context(), theKey, theOrder)
			kind, calls := saga.ErrFailed, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}
			if pivot {
				kind, calls = saga.ErrBlocked, []string{"s1", "s2"}
			}
			e := sagaError(t, err, kind)
			require.Equal(t, saga.CodeInvalidMessage, e.Code)
			require.Equal(t, "s2", e.Step)
			require.ErrorIs(t, err, saga.ErrTooLarge)
			require.Equal(t, calls, p.seen())
			rec := recordOf(t, store, theKey, "chain")
			require.Empty(t, rec.Outbox.Messages)
			require.Equal(t, 1, rec.Steps[1].Attempts)
			require.False(t, rec.Steps[1].StartedAt.IsZero())
		})
	}
}

// A message that is no message fails the step the same way, before anything is stored.
func TestMessagesThatAreInvalid(t *testing.T) {
	many := func(r *orderRun) {
		for range outbox.MaxMessages + 1 {
			r.Emit(outbox.Message{Topic: "t", Body: "b"})
		}
	}
	for name, emit := range map[string]func(r *orderRun){
		"no topic":         func(r *orderRun) { r.Emit(outbox.Message{Body: "b"}) },
		"no JSON":          func(r *orderRun) { r.Emit(outbox.Message{Topic: "t", Body: func() {}}) },
		"too many":         many,
		"too large":        func(r *orderRun) { r.Emit(outbox.Message{Topic: "t", Body: make([]byte, outbox.MaxBytes+1)}) },
		"one good, one no": func(r *orderRun) { r.Emit(outbox.Message{Topic: "t", Body: "b"}); r.Emit(outbox.Message{}) },
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, chain{p: p, declare: retryOften, after: at("s2", func(_ context.Context, r *orderRun) error { emit(r); return nil })}.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, saga.CodeInvalidMessage, sagaError(t, err, saga.ErrFailed).Code)
				require.ErrorIs(t, err, outbox.ErrInvalidMessage)
				require.Equal(t, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
				require.Empty(t, recordOf(t, store, theKey, "chain").Outbox.Messages)
			})
		})
	}
	t.Run("in a compensation", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			store := open()
			a := newProcess(t, world, store, chain{p: new(participant), before: at("s2", failing(steps.Permanent(errRefuse))),
				afterUndo: func(_ context.Context, r *orderRun) error { r.Emit(outbox.Message{}); return nil }}.of(2))
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.Equal(t, "s1", sagaError(t, err, saga.ErrBlocked).Step)
			require.Equal(t, state.StepCompensating, recordOf(t, store, theKey, "chain").Steps[0].Status)
		})
	})
}

// The store refuses one write for its size, wherever in a run that may be: no effect is repeated, and the run rests where
// a person or another call can go on.
func TestARefusalForSizeAtEveryWrite(t *testing.T) {
	full := fmt.Errorf("full: %w", state.ErrTooLarge)
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint("write ", n), func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, chain{p: p, before: at("s3", failing(steps.Permanent(errRefuse)))}.of(3))
				writes := 0
				a.net.On(func(c sagatest.StoreCall) bool {
					if sagatest.Writes(c) {
						writes++
					}
					return writes == n
				}, sagatest.Fail(full))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.Error(t, err)
				b := newProcess(t, world, store, chain{p: p, before: at("s3", failing(steps.Permanent(errRefuse)))}.of(3))
				b.clk.Advance(theLease)
				_, _ = b.o.Run(t.Context(), theKey, theOrder)
				rec := recordOf(t, store, theKey, "chain")
				if rec.Status == state.StatusBlocked { // an undo whose record was refused
					require.NoError(t, b.o.Retry(t.Context(), theKey, "there is room now"))
					_, _ = b.o.Run(t.Context(), theKey, theOrder)
					rec = recordOf(t, store, theKey, "chain")
				}
				require.Equal(t, state.StatusFailed, rec.Status)
				for _, call := range []string{"s1", "s2"} {
					times := 0
					for _, seen := range p.seen() {
						if seen == call {
							times++
						}
					}
					require.LessOrEqual(t, times, 1, "%v", p.seen())
				}
			})
		})
	}
}

// What a probe has found is too large to record on the way back: the compensation is told that nothing is known.
func TestAProbesAnswerThatIsTooLargeOnTheWayBack(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		interruptedAt(t, p, store, world)
		asked := 0
		probe := chain{p: p, declare: probing(true, &asked)}
		a := newProcess(t, world, store, probe.of(2))
		a.net.On(sagatest.Records("s2", state.StepDone), sagatest.Fail(fmt.Errorf("full: %w", state.ErrTooLarge)))
		require.NoError(t, a.o.Cancel(t.Context(), theKey, "no"))
		require.Equal(t, state.StatusFailed, recordOf(t, store, theKey, "chain").Status)
		require.Equal(t, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
		require.Equal(t, 1, asked)
	})
}

// A step that is done, and whose record is refused together with the trouble of the next one's When: it is recorded as
// done all the same.
func TestADoneStepIsRecordedThoughTheNextOneIsInTrouble(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
			if i == 1 {
				s.When(func(*orderRun) bool { panic("oh") })
			}
		}}.of(2))
		a.net.On(sagatest.Records("s1", state.StepDone), sagatest.Fail(fmt.Errorf("full: %w", state.ErrTooLarge)))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		e := sagaError(t, err, saga.ErrFailed)
		require.Equal(t, saga.CodeUnrecordable, e.Code)
		require.Equal(t, []string{"s1", "undo s1 unknown"}, p.seen())
	})
}

// A probe is asked about what is unknown, and about nothing else: not about a step that is known to be done, though its
// result could not be recorded, and though its compensation has failed before.
func TestAProbeIsAskedOnlyAboutTheUnknown(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		asked, undos := 0, 0
		bad := steps.New("bad", func(context.Context, *orderRun) (any, error) { return make(chan int), nil }).
			Probe(func(context.Context, *orderRun) (any, bool, error) { asked++; return nil, true, nil }).
			Compensate(func(_ context.Context, _ *orderRun, did steps.Outcome[any]) error {
				require.False(t, did.Known)
				if undos++; undos < 3 {
					return errors.New("busy")
				}
				return nil
			}).CompensateRetry(once)
		a := newProcess(t, world, store, saga.Define("bad", saga.NoResult[order], bad))
		for range 2 {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		}
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		require.Zero(t, asked)
	})
}

// A result that can't be encoded, with messages for which there is no room: the messages are what can't be recorded, and the
// step is not called again.
func TestAnUnencodableResultWithMessagesThatAreTooLarge(t *testing.T) {
	for _, pivot := range []bool{false, true} {
		calls := 0
		a := steps.New("a", func(_ context.Context, r *orderRun) (any, error) {
			calls++
			r.Emit(outbox.Message{Topic: "t", Body: strings.Repeat("x", 50_000)})
			return func() {}, nil
		})
		kind := saga.ErrFailed
		if pivot {
			a.Pivot()
			kind = saga.ErrBlocked
		}
		o := newSaga(t, saga.Define("op", saga.NoResult[order], a), small(20_000))
		for range 2 {
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.Equal(t, saga.CodeInvalidMessage, sagaError(t, err, kind).Code)
		}
		require.Equal(t, 1, calls)
	}
}

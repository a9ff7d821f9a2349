package saga_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// hollow is an error that can't even say what it is when it is nil.
type hollow struct{ text string }

func (e *hollow) Error() string        { return e.text }
func (e *hollow) Unwrap() error        { return errors.New(e.text) }
func (e *hollow) Is(target error) bool { return e.text == target.Error() }

// bare is an error whose methods work on nil.
type bare struct{}

func (*bare) Error() string { return "bare" }

func TestTheClassOfAnErrorIsFoundThroughAllWrapping(t *testing.T) {
	other := errors.New("other")
	for name, c := range map[string]struct {
		err       error
		permanent bool
	}{
		"permanent":                               {steps.Permanent(errRefuse), true},
		"permanent in %w":                         {fmt.Errorf("a: %w", fmt.Errorf("b: %w", steps.Permanent(errRefuse))), true},
		"permanent in two %w":                     {fmt.Errorf("%w and %w", other, steps.Permanent(errRefuse)), true},
		"permanent joined":                        {errors.Join(other, steps.Permanent(errRefuse)), true},
		"permanent under a code":                  {steps.WithCode("no", steps.Permanent(errRefuse)), true},
		"backoff's own":                           {fmt.Errorf("c: %w", backoff.Permanent(errRefuse)), true},
		"permanent beside a delay":                {errors.Join(steps.RetryAfter(time.Second, other), steps.Permanent(errRefuse)), true},
		"a cancellation of its own, made certain": {steps.Permanent(context.Canceled), true},
		"a typed nil, permanent":                  {steps.Permanent((*hollow)(nil)), true},
		"a typed nil of fs, permanent, joined":    {errors.Join(other, steps.Permanent((*fs.PathError)(nil))), true},
		"a typed nil":                             {(*hollow)(nil), false},
		"a typed nil of fs in %w":                 {fmt.Errorf("d: %w", (*fs.PathError)(nil)), false},
		"a typed nil that can speak":              {(*bare)(nil), false},
		"any other":                               {other, false},
		"a delay":                                 {fmt.Errorf("e: %w", steps.RetryAfter(time.Second, other)), false},
		"a cancellation of its own":               {context.Canceled, false},
		"permanent of nothing":                    {errors.Join(other, steps.Permanent(nil)), false},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p := new(participant)
				calls := 0
				d := chain{p: p, declare: retryOften, before: at("s2", func(context.Context, *orderRun) error { calls++; return c.err })}.of(2)
				store := open()
				_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				rec := recordOf(t, store, theKey, "chain")
				if c.permanent {
					e := sagaError(t, err, saga.ErrFailed)
					require.Equal(t, 1, calls)
					require.Equal(t, "s2", e.Step)
					require.Equal(t, []string{"s1", "undo s1 known"}, p.seen(), "it was not applied, so it is not undone")
					require.NotEmpty(t, rec.Failure.Message)
				} else {
					e := sagaError(t, err, saga.ErrInterrupted)
					require.Equal(t, 3, calls)
					require.Equal(t, "s2", e.Step)
					require.Equal(t, []string{"s1"}, p.seen())
					require.True(t, rec.Steps[1].Unknown)
					require.NotEmpty(t, rec.Steps[1].Error.Message)
				}
				require.NotEmpty(t, err.Error())
				require.NotErrorIs(t, err, fs.ErrNotExist, "the whole error can be walked")
				var none *fs.PathError
				require.NotPanics(t, func() { errors.As(err, &none) })
			})
		})
	}
}

// troubles are the ways for a function not to return.
var troubles = map[string]func(){
	"panic with a string":          func() { panic("oh") },
	"panic with an error":          func() { panic(errRefuse) },
	"panic with a permanent error": func() { panic(steps.Permanent(errRefuse)) },
	"panic with a struct":          func() { panic(struct{ A, B int }{1, 2}) },
	"panic with nil":               func() { panic(any(nil)) },
	"panic with a typed nil":       func() { panic((*hollow)(nil)) },
	"a runtime error":              func() { var none []int; none[len(none)] = 1 },
	"goexit":                       runtime.Goexit,
}

func TestAStepThatDoesNotReturnIsUnknownAndTriedAgain(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				d := chain{p: p, declare: retryOften, after: at("s2", func(context.Context, *orderRun) error { trouble(); return nil })}.of(2)
				_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NotErrorIs(t, sagaError(t, err, saga.ErrInterrupted), errRefuse, "a panic's value is no error of the step")
				require.Equal(t, []string{"s1", "s2", "s2", "s2"}, p.seen())
				rec := recordOf(t, store, theKey, "chain")
				require.True(t, rec.Steps[1].Unknown)
				require.Equal(t, 3, rec.Steps[1].Attempts)
				require.NotEmpty(t, rec.Steps[1].Error.Message)
				out, err := newSaga(t, chain{p: p}.of(2), store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, []string{"s1-1", "s2-2"}, out)
			})
		})
	}
}

func TestACompensationThatDoesNotReturnStopsTheWayBack(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				refuse := at("s2", failing(steps.Permanent(errRefuse)))
				d := chain{p: p, before: refuse, afterUndo: func(context.Context, *orderRun) error { trouble(); return nil }}.of(2)
				_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.Equal(t, "s1", sagaError(t, err, saga.ErrInterrupted).Step)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusCompensating, rec.Status)
				require.NotEmpty(t, rec.Steps[0].UndoError.Message)
				_, err = newSaga(t, chain{p: p, before: refuse}.of(2), store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrFailed)
				require.Equal(t, []string{"s1", "undo s1 known", "undo s1 known"}, p.seen())
			})
		})
	}
}

// A compensation that says that it will never work needs a person, however its error is wrapped; every other error only
// stops the way back.
func TestTheClassOfACompensationsErrorDecides(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		blocked bool
	}{
		"permanent in %w":       {fmt.Errorf("a: %w", steps.Permanent(errors.New("never"))), true},
		"permanent joined":      {errors.Join(errors.New("b"), steps.Permanent(errors.New("never"))), true},
		"a typed nil":           {(*hollow)(nil), false},
		"a typed nil, for good": {steps.Permanent((*hollow)(nil)), true},
		"any other":             {errors.New("not now"), false},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				d := chain{p: p, before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: failing(c.err)}.of(2)
				_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				kind, status := saga.ErrInterrupted, state.StatusCompensating
				if c.blocked {
					kind, status = saga.ErrBlocked, state.StatusBlocked
				}
				require.Equal(t, "s1", sagaError(t, err, kind).Step)
				require.Equal(t, status, recordOf(t, store, theKey, "chain").Status)
			})
		})
	}
}

// interruptedAt is a chain of two that stops with s2 unknown.
func interruptedAt(t *testing.T, p *participant, store state.Store, clk *clock.Fake) {
	t.Helper()
	d := chain{p: p, after: at("s2", failing(errors.New("no answer")))}.of(2)
	_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
	sagaError(t, err, saga.ErrInterrupted)
}

func TestAProbeThatDoesNotAnswerInterrupts(t *testing.T) {
	asked := map[string]func() error{
		"any error":   func() error { return errors.New("no") },
		"permanent":   func() error { return steps.Permanent(errRefuse) },
		"a typed nil": func() error { return (*hollow)(nil) },
		"a delay":     func() error { return steps.RetryAfter(time.Minute, nil) },
	}
	for name, trouble := range troubles {
		asked[name] = func() error { trouble(); return nil }
	}
	for name, ask := range asked {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				interruptedAt(t, p, store, clk)
				d := chain{p: p, declare: func(i int, s *steps.Step[order, voucher]) {
					s.Probe(func(context.Context, *orderRun) (voucher, bool, error) { return voucher{"from the probe"}, true, ask() })
				}}.of(2)
				_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				e := sagaError(t, err, saga.ErrInterrupted)
				require.Equal(t, "s2", e.Step)
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, "DONE PENDING", stepStatuses(rec))
				require.True(t, rec.Steps[1].Unknown)
				require.Equal(t, name == "a delay", e.RetryAfter == time.Minute)
				require.Equal(t, name == "a delay", rec.NotBefore.Equal(clk.Now().Add(time.Minute)))
				clk.Advance(time.Minute)
				_, err = newSaga(t, chain{p: p}.of(2), store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, []string{"s1", "s2", "s2"}, p.seen())
			})
		})
	}
}

// The steps stay done; only the result is worked out again.
func TestAResultFunctionThatFailsLeavesTheStepsDone(t *testing.T) {
	fail := map[string]func() error{
		"any error":   func() error { return errors.New("no") },
		"permanent":   func() error { return steps.Permanent(errRefuse) },
		"a typed nil": func() error { return (*hollow)(nil) },
	}
	for name, trouble := range troubles {
		fail[name] = func() error { trouble(); return nil }
	}
	for name, f := range fail {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				broken := true
				step := steps.New("only", func(_ context.Context, r *orderRun) (voucher, error) { return p.do("only", r.IdempotencyKey()), nil })
				d := saga.Define("late", func(_ context.Context, r *orderRun) (string, error) {
					if broken {
						return "", f()
					}
					return step.Output(r).ID, nil
				}, step)
				o := newSaga(t, d, store, saga.WithClock(clk))
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					sagaError(t, err, saga.ErrInterrupted)
					require.NotPanics(t, func() { require.NotErrorIs(t, err, fs.ErrNotExist) })
					rec := recordOf(t, store, theKey, "late")
					require.Equal(t, state.StatusInterrupted, rec.Status)
					require.Equal(t, "DONE", stepStatuses(rec))
					require.Empty(t, rec.CurrentStep)
				}
				broken = false
				out, err := o.Run(t.Context(), theKey, theOrder)
				require.NoError(t, err)
				require.Equal(t, "only-1", out)
				require.Equal(t, []string{"only"}, p.seen())
			})
		})
	}
}

// A When is pure: what it does once it does always, so that there is no use in trying again.
func TestAWhenThatDoesNotReturnIsAPermanentFailure(t *testing.T) {
	for name, trouble := range troubles {
		for _, step := range []string{"s1", "s2"} {
			t.Run(name+" at "+step, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					d := chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
						if s.Name() == step {
							s.When(func(*orderRun) bool { trouble(); return true })
						}
					}}.of(2)
					o := newSaga(t, d, store, saga.WithClock(clk))
					_, err := o.Run(t.Context(), theKey, theOrder)
					require.Equal(t, step, sagaError(t, err, saga.ErrFailed).Step)
					want := map[string][]string{"s1": {}, "s2": {"s1", "undo s1 known"}}[step]
					require.Equal(t, want, p.seen())
					_, again := o.Run(t.Context(), theKey, theOrder)
					require.EqualError(t, again, err.Error())
				})
			})
		}
	}
}

func TestAnInterceptorThatDoesNotReturnFailsTheAttempt(t *testing.T) {
	for name, trouble := range troubles {
		for _, when := range []string{"before", "after"} {
			t.Run(name+" "+when+" the call", func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					broken := true
					o := newSaga(t, chain{p: p}.of(2), store, saga.WithClock(clk), saga.WithInterceptor(
						func(ctx context.Context, c saga.Call, next func(context.Context) error) error {
							if !broken || c.Step != "s2" {
								return next(ctx)
							}
							if when == "after" {
								if err := next(ctx); err != nil {
									return err
								}
							}
							trouble()
							return nil
						}))
					_, err := o.Run(t.Context(), theKey, theOrder)
					sagaError(t, err, saga.ErrInterrupted)
					rec := recordOf(t, store, theKey, "chain")
					require.Equal(t, "DONE PENDING", stepStatuses(rec))
					require.True(t, rec.Steps[1].Unknown)
					broken = false
					_, err = o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
				})
			})
		}
	}
}

// A listener's panic is logged and goes no further, whatever it listens to.
func TestAPanicInAListenerGoesNoFurther(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		core, logs := observer.New(zap.ErrorLevel)
		p, store := new(participant), open()
		var told []string
		onRun := func(what string) func(context.Context, saga.RunEvent) {
			return func(context.Context, saga.RunEvent) { told = append(told, what); panic(what) }
		}
		onStep := func(what string) func(context.Context, saga.StepEvent) {
			return func(_ context.Context, ev saga.StepEvent) { told = append(told, what+" "+ev.Step); panic(what) }
		}
		l := saga.Listener{
			RunStarted: onRun("started"), RunResumed: onRun("resumed"), RunReplayed: onRun("replayed"), RunCompleted: onRun("completed"),
			RunFailed: onRun("failed"), RunBlocked: onRun("blocked"), RunInterrupted: onRun("interrupted"), LeaseLost: onRun("lost"),
			StepStarted: onStep("start"), StepDone: onStep("done"), StepSkipped: onStep("skip"), StepRetried: onStep("retry"), StepUndone: onStep("undone"),
		}
		skipFirst := func(i int, s *steps.Step[order, voucher]) {
			s.Retry(steps.RetryPolicy{PerRun: 2})
			if i == 0 {
				s.When(func(*orderRun) bool { return false })
			}
		}
		refuse := false
		d := chain{p: p, declare: skipFirst, before: at("s3", func(context.Context, *orderRun) error {
			if refuse {
				return steps.Permanent(errRefuse)
			}
			return errors.New("not now")
		})}.of(3)
		o := newSaga(t, d, store, saga.WithClock(clk), saga.WithListener(l), saga.WithLogger(zap.New(core)))
		_, err := o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		refuse = true
		for range 2 {
			_, err = o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrFailed)
		}
		want := []string{"started", "skip s1", "start s2", "done s2", "start s3", "retry s3", "start s3", "interrupted",
			"resumed", "start s3", "undone s3", "undone s2", "failed", "replayed"}
		require.Equal(t, want, told)
		require.Len(t, logs.FilterMessage("listener_panic").All(), len(want))
	})
}

// A listener that ends its goroutine ends the caller's, and nothing else: no lock is left behind, and the lease lapses.
func TestAListenerThatEndsTheCallersGoroutineLeavesNothingBehind(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		once := true
		o := newSaga(t, chain{p: p}.of(2), store, saga.WithClock(clk), saga.WithListener(saga.Listener{
			StepDone: func(context.Context, saga.StepEvent) {
				if once {
					once = false
					runtime.Goexit()
				}
			},
		}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = o.Run(t.Context(), theKey, theOrder)
		}()
		within(t, ended)
		lapse(clk)
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, []string{"s1", "s2"}, p.seen())
	})
}

// A fingerprint function that panics says so, and nothing is stored.
func TestAFingerprintThatPanicsIsAnInvalidInput(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store := open()
		d := chain{p: new(participant)}.of(1).Fingerprint(func(order) any { panic("oh") })
		_, err := newSaga(t, d, store, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInvalidInput)
		_, err = store.Get(t.Context(), "t#chain#1")
		require.ErrorIs(t, err, state.ErrNotFound)
	})
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// told is all that a listener is told, one line an event.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// kindOf is the kind of an error of this library, in a word.
func kindOf(err error) string {
	var e *saga.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Kind.Error()
}

func (l *told) listener(t *testing.T) saga.Listener {
	run := func(what string) func(context.Context, saga.RunEvent) {
		return func(ctx context.Context, ev saga.RunEvent) {
			assert.NotNil(t, ctx)
			assert.Equal(t, "1", ev.Key.ID)
			assert.NotEmpty(t, ev.Key.Operation)
			l.add("%s %s run %d %s", what, ev.Status, ev.Runs, kindOf(ev.Err))
		}
	}
	step := func(what string) func(context.Context, saga.StepEvent) {
		return func(ctx context.Context, ev saga.StepEvent) {
			assert.NotNil(t, ctx)
			text := ""
			if ev.Err != nil {
				text = ev.Err.Error()
			}
			if ev.Wait > 0 {
				text += fmt.Sprint(" wait ", ev.Wait)
			}
			l.add("%s %s attempt %d %s", what, ev.Step, ev.Attempt, text)
		}
	}
	return saga.Listener{
		RunStarted: run("started"), RunResumed: run("resumed"), RunReplayed: run("replayed"), RunCompleted: run("completed"), RunFailed: run("failed"),
		RunBlocked: run("blocked"), RunInterrupted: run("interrupted"), LeaseLost: run("lease lost"),
		StepStarted: step("  start"), StepDone: step("  done"), StepSkipped: step("  skip"), StepRetried: step("  retry"), StepUndone: step("  undone"),
	}
}

// What a listener hears, in order, of runs of every fate.
func TestAListenerHearsEverythingInOrder(t *testing.T) {
	thrice := func(_ int, s *steps.Step[order, voucher]) {
		s.Retry(steps.RetryPolicy{Initial: time.Second, Jitter: -1, PerRun: 3}).CompensateRetry(steps.RetryPolicy{Initial: time.Second, Jitter: -1, PerRun: 2})
	}
	busyOnce := func(_ context.Context, r *orderRun) error {
		if r.Attempt() == 1 {
			return errBusy
		}
		return nil
	}
	for name, c := range map[string]struct {
		chain chain
		then  func(t *testing.T, a *process[order, []string])
		want  []string
	}{
		"completed, and again": {chain{declare: thrice, after: at("s2", busyOnce)}, func(t *testing.T, a *process[order, []string]) {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "retry s2 attempt 1 busy wait 1s",
			"start s2 attempt 2", "done s2 attempt 2", "completed COMPLETED run 1", "replayed COMPLETED run 1",
		}},
		"failed, and again": {chain{declare: thrice, before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: busyOnce}, func(t *testing.T, a *process[order, []string]) {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrFailed)
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "retry s1 attempt 1 busy wait 1s",
			"undone s1 attempt 2", "failed FAILED run 1 failed", "replayed FAILED run 1 failed",
		}},
		"interrupted, and on": {chain{before: at("s2", busyOnce)}, func(t *testing.T, a *process[order, []string]) {
			_, err := a.o.Resume(t.Context(), theKey)
			require.NoError(t, err)
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "interrupted INTERRUPTED run 1 interrupted",
			"resumed IN_PROGRESS run 2", "start s2 attempt 2", "done s2 attempt 2", "completed COMPLETED run 2",
		}},
		"reversed": {chain{}, func(t *testing.T, a *process[order, []string]) {
			require.NoError(t, a.o.Reverse(t.Context(), theKey, "returned"))
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "done s2 attempt 1", "completed COMPLETED run 1",
			"resumed COMPENSATING run 2", "undone s2 attempt 1", "undone s1 attempt 1", "failed REVERSED run 2 reversed",
		}},
		"blocked, and again": {chain{before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: failing(steps.Permanent(errBusy))}, func(t *testing.T, a *process[order, []string]) {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrBlocked)
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "blocked BLOCKED run 1 blocked", "replayed BLOCKED run 1 blocked",
		}},
		"cancelled": {chain{before: at("s2", busyOnce)}, func(t *testing.T, a *process[order, []string]) {
			require.NoError(t, a.o.Cancel(t.Context(), theKey, "no"))
		}, []string{
			"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "start s2 attempt 1", "interrupted INTERRUPTED run 1 interrupted",
			"resumed COMPENSATING run 2", "undone s2 attempt 1", "undone s1 attempt 1", "failed FAILED run 2 failed",
		}},
		"skipped": {chain{declare: func(_ int, s *steps.Step[order, voucher]) { s.When(func(*orderRun) bool { return s.Name() == "s1" }) }},
			func(*testing.T, *process[order, []string]) {}, []string{
				"started IN_PROGRESS run 1", "start s1 attempt 1", "done s1 attempt 1", "skip s2 attempt 0", "completed COMPLETED run 1",
			}},
		"all skipped": {chain{declare: func(_ int, s *steps.Step[order, voucher]) { s.When(func(*orderRun) bool { return false }) }},
			func(*testing.T, *process[order, []string]) {}, []string{
				"started IN_PROGRESS run 1", "skip s1 attempt 0", "skip s2 attempt 0", "completed COMPLETED run 1",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				l := new(told)
				ch := c.chain
				ch.p = new(participant)
				a := newProcess(t, world, open(), ch.of(2), saga.WithListener(l.listener(t)))
				_, _ = a.o.Run(t.Context(), theKey, theOrder)
				c.then(t, a)
				require.Equal(t, c.want, l.lines)
			})
		})
	}
}

func TestAListenerHearsOfALostLease(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store, l := open(), new(told)
		b := newProcess(t, world, store, chain{p: new(participant)}.of(2))
		b.clk.Advance(theLease)
		a := newProcess(t, world, store, chain{p: new(participant), after: at("s1", func(context.Context, *orderRun) error {
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			return err
		})}.of(2), saga.WithListener(l.listener(t)))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrLeaseLost)
		require.Equal(t, []string{"started IN_PROGRESS run 1", "start s1 attempt 1", "lease lost IN_PROGRESS run 1 the lease was lost to another holder"}, l.lines)
	})
}

type traceKey struct{}

// Interceptors are nested around each call of a step, a compensation and a probe, the first outermost, and may derive the
// context; they see which call it is.
func TestInterceptorsAreNested(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		l := new(told)
		layer := func(name string) saga.Option {
			return saga.WithInterceptor(func(ctx context.Context, c saga.Call, next func(context.Context) error) error {
				l.add("%s> %s %s %d %s %s", name, c.Phase, c.Step, c.Attempt, c.IdempotencyKey, c.Key.String())
				trace, _ := ctx.Value(traceKey{}).(string)
				err := next(context.WithValue(ctx, traceKey{}, trace+name))
				l.add("<%s %v", name, err)
				return err
			})
		}
		p := new(participant)
		traced := func(ctx context.Context, r *orderRun) error { l.add("%v", ctx.Value(traceKey{})); return nil }
		busy := true
		d := chain{p: p, before: traced, beforeUndo: traced, declare: func(i int, s *steps.Step[order, voucher]) {
			if i == 1 {
				s.Probe(func(ctx context.Context, r *orderRun) (voucher, bool, error) { return voucher{}, false, traced(ctx, r) })
			}
		}, after: at("s2", func(context.Context, *orderRun) error {
			if busy {
				return errBusy
			}
			return steps.Permanent(errRefuse)
		})}.of(2)
		a := newProcess(t, world, open(), d, layer("A"), layer("B"))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		busy = false
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		call := func(what, attempt, key, result string) []string {
			text := fmt.Sprintf("%s %s t#chain#1/%s t#chain#1", what, attempt, key)
			return []string{"A> " + text, "B> " + text, "AB", "<B " + result, "<A " + result}
		}
		var want []string
		want = append(want, call("do s1", "1", "s1", "<nil>")...)
		want = append(want, call("do s2", "1", "s2", "busy")...)
		want = append(want, call("probe s2", "1", "s2", "<nil>")...)
		want = append(want, call("do s2", "2", "s2", "refused for good")...)
		want = append(want, call("undo s1", "1", "s1/compensate", "<nil>")...)
		require.Equal(t, want, l.lines)
	})
}

// What an interceptor makes of a call: its error stands for the call's, of whatever class; success it can't make.
func TestWhatAnInterceptorCanDo(t *testing.T) {
	own := errors.New("the interceptor's own")
	for name, c := range map[string]struct {
		call  error // what the step returns
		f     func(ctx context.Context, next func(context.Context) error) error
		kind  error
		is    error
		calls int
		undo  bool // s2 is undone: it is unknown
	}{
		"passes it on":        {nil, func(ctx context.Context, next func(context.Context) error) error { return next(ctx) }, nil, nil, 1, false},
		"doesn't call it":     {nil, func(context.Context, func(context.Context) error) error { return own }, saga.ErrInterrupted, own, 0, true},
		"refuses it for good": {nil, func(context.Context, func(context.Context) error) error { return steps.Permanent(own) }, saga.ErrFailed, own, 0, false},
		"says nothing":        {nil, func(context.Context, func(context.Context) error) error { return nil }, saga.ErrInterrupted, nil, 0, true},
		"hides an error":      {errBusy, func(ctx context.Context, next func(context.Context) error) error { _ = next(ctx); return nil }, saga.ErrInterrupted, errBusy, 1, true},
		"hides a refusal":     {steps.Permanent(errRefuse), func(ctx context.Context, next func(context.Context) error) error { _ = next(ctx); return nil }, saga.ErrFailed, errRefuse, 1, false},
		"replaces an error": {errBusy, func(ctx context.Context, next func(context.Context) error) error {
			return fmt.Errorf("%w: %w", own, steps.Permanent(next(ctx)))
		}, saga.ErrFailed, own, 1, false},
		"softens a refusal": {steps.Permanent(errRefuse), func(ctx context.Context, next func(context.Context) error) error {
			return errors.New(next(ctx).Error())
		}, saga.ErrInterrupted, nil, 1, true},
		"denies a success": {nil, func(ctx context.Context, next func(context.Context) error) error { return errors.Join(next(ctx), own) }, saga.ErrInterrupted, own, 1, true},
		"calls it twice": {nil, func(ctx context.Context, next func(context.Context) error) error {
			return errors.Join(next(ctx), next(ctx))
		}, saga.ErrInterrupted, nil, 1, true},
		"swallows a panic": {nil, func(ctx context.Context, next func(context.Context) error) error {
			defer func() { _ = recover() }()
			return next(context.WithValue(ctx, traceKey{}, "panic"))
		}, saga.ErrInterrupted, nil, 1, true},
		"doesn't wait for it": {nil, func(ctx context.Context, next func(context.Context) error) error {
			done := make(chan struct{})
			go func() { defer close(done); _ = next(ctx) }()
			t.Cleanup(func() { <-done })
			return own
		}, saga.ErrInterrupted, own, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				d := chain{p: p, after: at("s2", func(ctx context.Context, _ *orderRun) error {
					if ctx.Value(traceKey{}) == "panic" {
						panic("oh")
					}
					return c.call
				})}.of(2)
				a := newProcess(t, world, store, d, saga.WithInterceptor(func(ctx context.Context, call saga.Call, next func(context.Context) error) error {
					if call.Step == "s2" && call.Phase == "do" {
						return c.f(ctx, next)
					}
					return next(ctx)
				}))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				if c.kind == nil {
					require.NoError(t, err)
				} else {
					sagaError(t, err, c.kind)
				}
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				calls := 0
				for _, call := range p.seen() {
					if call == "s2" {
						calls++
					}
				}
				if c.calls >= 0 {
					require.Equal(t, c.calls, calls)
				}
				s2, _ := recordOf(t, store, theKey, "chain").Step("s2")
				require.Equal(t, c.undo, s2.Unknown)
			})
		})
	}
}

// Whatever happens to a run, no payload gets into the log: inputs, results, messages, and what errors and panics say.
func TestNoPayloadIsLogged(t *testing.T) {
	const secret = "hush-hush-hush"
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		core, logs := observer.New(zapcore.DebugLevel)
		store := open()
		in := order{No: secret, Amount: 1}
		result := func(ctx context.Context, r *orderRun) (string, error) { return secret, nil }
		fails := map[string]func(r *orderRun) error{
			"fine":       func(*orderRun) error { return nil },
			"transient":  func(*orderRun) error { return errors.New("no " + secret) },
			"permanent":  func(*orderRun) error { return steps.Permanent(steps.WithCode("declined", errors.New("no "+secret))) },
			"panic":      func(*orderRun) error { panic("oh " + secret) },
			"panic err":  func(*orderRun) error { panic(errors.New(secret)) },
			"panic text": func(*orderRun) error { panic(secret) },
			"output":     func(r *orderRun) error { steps.New("x", result).Output(r); return nil },
			"message": func(r *orderRun) error {
				r.Emit(outbox.Message{Topic: secret + "\n", Body: make(chan int)})
				return nil
			},
		}
		for name, fail := range fails {
			for _, undo := range fails {
				key := saga.Key{Tenant: name, ID: fmt.Sprint(len(logs.All()))}
				first := steps.New("first", func(_ context.Context, r *orderRun) (string, error) {
					r.Emit(outbox.Message{Topic: "t", Body: secret})
					return secret, nil
				}).Compensate(func(_ context.Context, r *orderRun, _ steps.Outcome[string]) error { return undo(r) })
				second := steps.New("second", func(_ context.Context, r *orderRun) (string, error) { return secret, fail(r) })
				d := saga.Define("secrets", result, first, second)
				a := newProcess(t, world, store, d, saga.WithLogger(zap.New(core)))
				for range 2 {
					_, _ = a.o.Run(t.Context(), key, in)
				}
				_, _ = a.o.Run(t.Context(), key, order{No: secret, Amount: 2})
				_, _ = a.o.Run(t.Context(), saga.Key{ID: "\n"}, in)
				world.Advance(time.Hour)
				a.clk.Advance(time.Hour)
				_, _ = saga.Recover(t.Context(), a.o)
				a.net.On(sagatest.Method("Commit"), sagatest.Fail(fmt.Errorf("down: %w", state.ErrTooLarge)))
				_, _ = a.o.Resume(t.Context(), key)
				_ = a.o.Cancel(t.Context(), key, "why")
				_ = a.o.Reverse(t.Context(), key, "why")
				renamed := newProcess(t, world, store, saga.Define("secrets", result, second), saga.WithLogger(zap.New(core)))
				renamed.clk.Advance(time.Hour)
				_, _ = saga.Recover(t.Context(), renamed.o)
			}
		}
		seen := map[string]bool{}
		for _, e := range logs.All() {
			seen[e.Message] = true
			line, err := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(e.Entry, e.Context)
			require.NoError(t, err)
			require.NotContains(t, line.String(), secret)
			require.NotContains(t, line.String(), "hush", "nor a part of it")
			line.Free()
		}
		for _, event := range []string{"business_operation_executed", "job_skipped", "run_failed", "run_blocked", "run_interrupted", "step_panic", "messages_without_relay", "recovery_interrupted"} {
			require.True(t, seen[event], event)
		}
	})
}

// One line for each step that ran and for each replay, at info.
func TestTheLogOfARun(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		core, logs := observer.New(zapcore.DebugLevel)
		a := newProcess(t, world, open(), chain{p: new(participant)}.of(2), saga.WithLogger(zap.New(core)))
		for range 2 {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
		}
		var got []string
		for _, e := range logs.All() {
			f := e.ContextMap()
			require.Equal(t, "chain", f["operation"])
			require.Equal(t, "t#chain#1", f["key"])
			got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", f["step"], f["status"]))
		}
		require.Equal(t, []string{"info business_operation_executed s1<nil>", "info business_operation_executed s2<nil>", "info job_skipped <nil>COMPLETED"}, got)
	})
}

func TestEveryPanicIsLoggedWithItsStack(t *testing.T) {
	for _, where := range []string{"do", "when", "result"} {
		t.Run(where, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			panics := func(here string) {
				if here == where {
					panic("oh")
				}
			}
			a := steps.Do("a", func(context.Context, *orderRun) error { panics("do"); return nil }).
				Retry(steps.RetryPolicy{PerRun: 1}).When(func(*orderRun) bool { panics("when"); return true })
			o := newSaga(t, saga.Define("op", func(context.Context, *orderRun) (int, error) { panics("result"); return 1, nil }, a),
				memory.New(), saga.WithLogger(zap.New(core)))
			_, err := o.Run(t.Context(), theKey, theOrder)
			require.Error(t, err)
			told := logs.FilterMessage("step_panic").All()
			require.Len(t, told, 1)
			require.Contains(t, told[0].ContextMap()["stack"], "TestEveryPanicIsLoggedWithItsStack")
			require.Equal(t, where, told[0].ContextMap()["phase"])
		})
	}
}

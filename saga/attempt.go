package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// errAbandoned: a function went on after its context had ended for as long as it was waited for.
var errAbandoned = errors.New("a function ignored the end of its context; its answer is no longer waited for")

// errGoexit: a function ended its goroutine.
var errGoexit = errors.New("the function called runtime.Goexit")

// panicError is a panic of a user's function.
type panicError struct {
	value  any
	stack  []byte
	logged atomic.Bool
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// userFunc is a function of the user's, with its types erased.
type userFunc func(context.Context, *drive.Call) drive.Result

// call is one call of a step, a compensation or a probe. err is errAbandoned when no answer came.
func (h *holder) call(ctx context.Context, run *runContext, s *drive.Step, c *drive.Call, f userFunc) (drive.Result, error) {
	ctx, cancel := h.bounded(ctx, run, s.Timeout)
	defer cancel()
	r, err := h.await(ctx, run, c, f, 0)
	return h.looked(c, r), err
}

// await calls a user's function in a goroutine of its own, so that it can be waited for no longer than is good for the
// run, and so that it may end its goroutine. err is errAbandoned when no answer came. A function that is quick has the grace
// for its answer even when it is called with no time left.
func (h *holder) await(ctx context.Context, run *runContext, c *drive.Call, f userFunc, grace time.Duration) (drive.Result, error) {
	a := h.worker.attempt()
	a.h, a.f = h, func() drive.Result { return h.e.intercepted(ctx, h.key, c, f) }
	h.worker.do(a)
	r, answered := h.answer(ctx, run, a, grace)
	if !answered {
		h.worker.leave()
		return drive.Result{Err: errAbandoned}, errAbandoned
	}
	h.worker.answered()
	return r, nil
}

// answer waits for a call's answer, and in the end gives the call up.
func (h *holder) answer(ctx context.Context, run *runContext, a *attempt, grace time.Duration) (r drive.Result, answered bool) {
	select {
	case r := <-a.answer:
		return r, true
	case <-ctx.Done():
	}
	if r, ok := h.late(ctx, run, a, grace); ok {
		return r, true
	}
	return a.abandon()
}

// bounded ends the context at the step's timeout, and a little before the margin at the end of the caller's time, so that
// an obedient function's answer can still be recorded.
func (h *holder) bounded(ctx context.Context, run *runContext, timeout time.Duration) (context.Context, context.CancelFunc) {
	cancelOuter := func() {}
	if !run.deadline.IsZero() {
		ctx, cancelOuter = context.WithDeadline(ctx, h.callsEnd(run))
	}
	if timeout <= 0 {
		return ctx, cancelOuter
	}
	ctx, cancel := h.e.clk.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); cancelOuter() }
}

// callsEnd is when the caller's time for calls is over, if it has a deadline.
func (h *holder) callsEnd(run *runContext) time.Time {
	return run.deadline.Add(-h.e.margin - h.e.grace())
}

// grace is the time between the end of a function's context and the margin: for its answer.
func (e *engine) grace() time.Duration { return min(e.margin/5, 100*time.Millisecond) }

// late waits for a function that goes on after its context has ended: one more lease, which is renewed meanwhile, and at
// most to the caller's deadline less the margin. A holder that has lost the run doesn't wait long: nothing it hears can
// be recorded. It has the grace in any case.
func (h *holder) late(ctx context.Context, run *runContext, a *attempt, grace time.Duration) (drive.Result, bool) {
	wait := h.lease
	if cause := causeOf(ctx); errors.Is(cause, ErrLeaseLost) || errors.Is(cause, errLeaseOver) {
		wait = min(wait, time.Second)
	}
	enough := make(chan struct{})
	t := h.e.clk.AfterFunc(wait, func() { close(enough) })
	defer t.Stop()
	var out <-chan time.Time
	if !run.deadline.IsZero() {
		real := time.NewTimer(max(grace, time.Until(run.deadline)-h.e.margin))
		defer real.Stop()
		out = real.C
	}
	select {
	case r := <-a.answer:
		return r, true
	case <-enough:
	case <-out:
	}
	return drive.Result{}, false
}

// looked logs a panic's stack, makes Output's own panic permanent, and sees to it that the error can be looked at.
func (h *holder) looked(c *drive.Call, r drive.Result) drive.Result {
	p, ok := r.Err.(*panicError)
	if !ok {
		r.Err = sound(r.Err)
		return r
	}
	h.e.logPanic(h.runKey, c, p)
	if missing, ok := p.value.(*drive.NoOutput); ok {
		r.Err = steps.Permanent(missing)
	}
	return r
}

// logPanic logs the stack of a panic, once.
func (e *engine) logPanic(runKey string, c *drive.Call, p *panicError) {
	if p.logged.CompareAndSwap(false, true) {
		e.log.Error("step_panic", zap.String("key", runKey), zap.String("step", c.Step), zap.String("phase", string(c.Phase)), zap.ByteString("stack", p.stack))
	}
}

// quick calls a function of the user's that is no step's: a When, or the result function.
func (h *holder) quick(run *runContext, c *drive.Call, f userFunc) (drive.Result, error) {
	ctx, cancel := h.bounded(run, run, 0)
	defer cancel()
	r, err := h.await(ctx, run, c, f, h.e.grace())
	if _, bad := c.Close(); bad != nil && r.Err == nil {
		r.Err = bad
	}
	if p, ok := r.Err.(*panicError); ok {
		h.e.logPanic(h.runKey, c, p)
	}
	r.Err = sound(r.Err)
	return r, err
}

// intercepted puts the interceptor around a call of a step, a compensation or a probe.
func (e *engine) intercepted(ctx context.Context, key Key, c *drive.Call, f userFunc) drive.Result {
	if e.intercept == nil || c.Phase == drive.When || c.Phase == drive.Output {
		return f(ctx, c)
	}
	var mu sync.Mutex
	var running sync.WaitGroup // an attempt isn't over before its function is
	called, over := false, false
	defer func() {
		mu.Lock()
		over = true
		mu.Unlock()
		running.Wait()
	}()
	r := drive.Result{Err: errors.New("an interceptor returned without calling next")}
	info := Call{Key: key, Step: c.Step, Phase: string(c.Phase), Attempt: c.Attempt, IdempotencyKey: c.DerivedKey()}
	err := e.intercept(ctx, info, func(ctx context.Context) error {
		mu.Lock()
		again, late := called, over
		called = true
		if !late {
			r.Err = errors.New("an interceptor returned before next did, or let its panic go")
		}
		if !late && !again {
			running.Add(1)
			defer running.Done()
		}
		mu.Unlock()
		switch {
		case late:
			return errors.New("an interceptor called next when its call was over")
		case again:
			return errors.New("an interceptor called next a second time")
		}
		got := e.caught(ctx, c, f)
		mu.Lock()
		defer mu.Unlock()
		if !over {
			r = got
		}
		return cmp.Or(got.Unencodable, got.Err)
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	if err != nil && r.Unencodable == nil {
		r = drive.Result{Err: err, NotCalled: r.NotCalled}
	}
	return r
}

// caught calls f for an interceptor. A panic goes through the interceptor, if it is on its goroutine, and up to the attempt; on
// any other one it would end the process, so there it becomes an error.
func (e *engine) caught(ctx context.Context, c *drive.Call, f userFunc) (r drive.Result) {
	returned := false
	defer func() {
		if returned || !elsewhere() {
			return
		}
		if v := recover(); v != nil {
			p := &panicError{value: v, stack: debug.Stack()}
			e.logPanic(c.RunKey, c, p)
			r = drive.Result{Err: p}
		}
	}()
	r = f(ctx, c)
	r.Err = sound(r.Err)
	returned = true
	return r
}

// elsewhere tells whether this is another goroutine than the one on which intercepted calls the interceptor.
func elsewhere() bool {
	var pcs [64]uintptr
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return true
		}
		for frames := runtime.CallersFrames(pcs[:n]); ; {
			frame, more := frames.Next()
			if strings.HasSuffix(frame.Function, "/saga.(*engine).intercepted") {
				return false
			}
			if !more {
				break
			}
		}
	}
}

// attempt is a call under way. When nobody waits for it any more, the engine remembers it until it ends.
type attempt struct {
	h *holder
	f func() drive.Result

	answer chan drive.Result
	mu     sync.Mutex
	left   bool
}

// run makes the call and answers, whatever the function does: panic and Goexit become errors.
func (a *attempt) run() {
	r := drive.Result{Err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			r = drive.Result{Err: &panicError{value: p, stack: debug.Stack()}}
		}
		a.finish(r)
	}()
	r = a.f()
}

// finish gives the answer, if somebody still waits for it.
func (a *attempt) finish(r drive.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		a.h.e.straggler(a.h.runKey, -1)
		return
	}
	a.answer <- r
}

// abandon gives the call up, unless its answer has come at the last moment.
func (a *attempt) abandon() (r drive.Result, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case r = <-a.answer:
		return r, true
	default:
	}
	a.left = true
	a.h.e.straggler(a.h.runKey, +1)
	return r, false
}

func (e *engine) straggler(runKey string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stragglers[runKey] += n
	if e.stragglers[runKey] == 0 {
		delete(e.stragglers, runKey)
	}
}

// running tells whether a function of this run that was abandoned is still running in this process.
func (e *engine) running(runKey string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stragglers[runKey] > 0
}

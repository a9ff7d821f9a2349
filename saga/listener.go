package saga

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// RunInfo says how a call of Run went.
type RunInfo struct {
	// Replayed: nothing was run; the stored result or failure was returned, or what blocks the run.
	Replayed bool
	// Resumed: the run had been taken up before.
	Resumed bool
	// Status of the record as this call last saw it; empty when the call neither ran nor replayed anything, because it was
	// refused or another holder is at work.
	Status state.Status
	// Runs is how often the run has been taken up.
	Runs int
}

// RunEvent is something that happened to a run.
type RunEvent struct {
	// Key of the run.
	Key Key
	// Status of its record.
	Status state.Status
	// Runs is how often it was taken up.
	Runs int
	// Err is what the caller gets; nil where there is no error.
	Err error
}

// StepEvent is something that happened to a step.
type StepEvent struct {
	// Key of the run.
	Key Key
	// Step is the step's name.
	Step string
	// Attempt over all runs, from 1.
	Attempt int
	// Wait before the next attempt, where there is one.
	Wait time.Duration
	// Err of the attempt, where it failed.
	Err error
}

// Listener is told what happens. Any field may be nil. The functions are called in the run's own time, so they should be
// quick; different runs call them concurrently. A panic in one is logged and goes no further. Keyed literals only.
type Listener struct {
	_ struct{}

	// RunStarted: a new record was created.
	RunStarted func(context.Context, RunEvent)
	// RunResumed: a run was taken up again.
	RunResumed func(context.Context, RunEvent)
	// RunReplayed: a stored result or failure was returned.
	RunReplayed func(context.Context, RunEvent)
	// RunCompleted: the last step is recorded.
	RunCompleted func(context.Context, RunEvent)
	// RunFailed: everything is undone; also for a reversed run.
	RunFailed func(context.Context, RunEvent)
	// RunBlocked: an operator is needed.
	RunBlocked func(context.Context, RunEvent)
	// RunInterrupted: the run stopped and can go on.
	RunInterrupted func(context.Context, RunEvent)
	// LeaseLost: another holder took over.
	LeaseLost func(context.Context, RunEvent)
	// StepStarted: an attempt begins.
	StepStarted func(context.Context, StepEvent)
	// StepDone: the step is recorded.
	StepDone func(context.Context, StepEvent)
	// StepSkipped: its When said no, and that is recorded.
	StepSkipped func(context.Context, StepEvent)
	// StepRetried: an attempt failed, and another follows after Wait.
	StepRetried func(context.Context, StepEvent)
	// StepUndone: the step's compensation is recorded.
	StepUndone func(context.Context, StepEvent)
}

// Call is what an interceptor sees of a call.
type Call struct {
	// Key of the run.
	Key Key
	// Step is the step's name.
	Step string
	// Phase is "do", "undo" or "probe".
	Phase string
	// Attempt over all runs, from 1.
	Attempt int
	// IdempotencyKey that the call carries.
	IdempotencyKey string
}

// Interceptor is called around every call of a step, a compensation or a probe. It calls next, once, and returns its
// error or another one in its place; it may derive the context. Not calling next fails the attempt. It can't turn an
// error into success. Where it returns before next does, next is waited for as the call itself would be; behind the end of
// the call next does nothing.
type Interceptor func(ctx context.Context, call Call, next func(context.Context) error) error

func (e *engine) tellRun(ctx context.Context, f func(context.Context, RunEvent), ev RunEvent) {
	if f != nil {
		defer e.listenerPanic()
		f(ctx, ev)
	}
}

func (e *engine) tellStep(ctx context.Context, f func(context.Context, StepEvent), ev StepEvent) {
	if f != nil {
		defer e.listenerPanic()
		f(ctx, ev)
	}
}

func (e *engine) listenerPanic() {
	if p := recover(); p != nil {
		e.log.Error("listener_panic", zap.Any("panic", p), zap.Stack("stack"))
	}
}

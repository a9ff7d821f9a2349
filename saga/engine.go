package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// engine runs a plan on a store. It has no type parameters; the orchestrator around it encodes and decodes.
type engine struct {
	plan      *plan
	store     state.Store
	clk       clock.Clock
	log       *zap.Logger
	listener  Listener
	intercept Interceptor
	lease     time.Duration
	margin    time.Duration
	errs      map[string]error
	retry     drive.Policy
	relay     Relay
	crew      crew

	recoverers int // how many runs a recovery has in hand at once

	mu         sync.Mutex
	stragglers map[string]int // functions that outlived their run here, by run key
	toldRelay  sync.Once
}

var defaultRetry = drive.Policy{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Multiplier: 2, Jitter: 0.5, PerRun: 3}

func newEngine(p *plan, store state.Store, opts []Option) (*engine, error) {
	if absent.Is(store) {
		return nil, fmt.Errorf("saga: %w: %q: the store is nil", ErrInvalidDefinition, p.name)
	}
	c := config{log: zap.NewNop(), lease: DefaultLease, margin: DefaultMargin, clk: clock.System(), recoverers: DefaultRecoverers}
	var wrong []error
	for _, o := range opts {
		if o != nil {
			wrong = append(wrong, o.apply(&c))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("saga: %w: %q: %w", ErrInvalidDefinition, p.name, err)
	}
	retry := drive.Policy{Initial: c.retry.Initial, Max: c.retry.Max, Multiplier: c.retry.Multiplier, Jitter: c.retry.Jitter, PerRun: c.retry.PerRun}
	return &engine{
		plan: p, store: store, clk: c.clk, log: c.log.With(zap.String("operation", p.name)), listener: c.listener, intercept: c.interceptor,
		lease: c.lease, margin: c.margin, errs: c.errs, retry: retry.Or(defaultRetry), relay: c.relay, recoverers: c.recoverers,
		stragglers: map[string]int{},
	}, nil
}

// now is the wall clock in the grain of a record.
func (e *engine) now() time.Time { return state.Milli(e.clk.Now()) }

// encodeKey fills in the operation and checks the key.
func (e *engine) encodeKey(key Key) (Key, string, error) {
	if key.Operation != "" && key.Operation != e.plan.name {
		return key, "", &Error{Kind: ErrInvalidKey, Key: key, Err: fmt.Errorf("the operation is %q, want %q or nothing", key.Operation, e.plan.name)}
	}
	key.Operation = e.plan.name
	enc, err := key.Encode()
	if err != nil {
		return key, "", &Error{Kind: ErrInvalidKey, Key: key, Err: err}
	}
	return key, enc, nil
}

// payload is the input of a call, and its hash by each declaration that is asked for it.
type payload struct {
	raw    json.RawMessage
	hashed *plan
	hash   string
}

func (pl *payload) hashBy(p *plan) (string, error) {
	if pl.hashed != p {
		h, err := p.hash(pl.raw)
		if err != nil {
			return "", err
		}
		pl.hashed, pl.hash = p, h
	}
	return pl.hash, nil
}

// storeError is the error of a store call after which nothing ran.
func (e *engine) storeError(key Key, err error) *Error {
	switch {
	case errors.Is(err, state.ErrNotFound):
		return &Error{Kind: ErrNotFound, Key: key, Err: err}
	case errors.Is(err, state.ErrTooLarge):
		return &Error{Kind: ErrTooLarge, Key: key, Err: err}
	case errors.Is(err, state.ErrNotAllowed):
		return &Error{Kind: ErrNotAllowed, Key: key, Err: err}
	}
	return &Error{Kind: ErrStore, Key: key, Err: err}
}

// failure is an error in its stored form. The message of a value that can't even say what it is (a typed nil, say) is
// replaced.
func (e *engine) failure(step string, code string, err error) *state.Failure {
	f := &state.Failure{Step: step, Code: code, At: e.now()}
	if f.Code == "" {
		f.Code = safely(func() string { return steps.Code(err) })
	}
	f.Code = state.Cut(f.Code)
	f.Message = state.Cut(safely(err.Error))
	return f
}

func safely(f func() string) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("(an error that can't be printed: %v)", p)
		}
	}()
	return f()
}

// asError is a stored failure as an error: its words, the error that its code stands for, and the live one if this very
// call has met it.
func (e *engine) asError(f *state.Failure, live error) error {
	if f == nil {
		return live
	}
	return &failureError{message: f.Message, mapped: e.errs[f.Code], live: live}
}

// verdict is what the caller gets for a record that rests.
func (e *engine) verdict(key Key, rec *state.Record, live error) (json.RawMessage, error) {
	switch rec.Status {
	case state.StatusCompleted:
		return rec.Response, nil
	case state.StatusFailed:
		return nil, e.failed(ErrFailed, key, rec.Failure, live)
	case state.StatusReversed:
		return nil, e.failed(ErrReversed, key, rec.Failure, live)
	case state.StatusBlocked:
		return nil, e.failed(ErrBlocked, key, rec.BlockedBy(), live)
	}
	return nil, &Error{Kind: ErrInterrupted, Key: key, Step: rec.CurrentStep, RetryAfter: max(0, rec.NotBefore.Sub(e.now())), Err: live}
}

func (e *engine) failed(kind error, key Key, f *state.Failure, live error) *Error {
	out := &Error{Kind: kind, Key: key, Err: e.asError(f, live)}
	if f != nil {
		out.Step, out.Code, out.NotUndone = f.Step, f.Code, f.NotUndone
	}
	return out
}

// run is one call: create or take up the run, drive it, and tell what came of it. in is nil for a Resume.
func (e *engine) run(ctx context.Context, key Key, in *payload, rc runConfig) (json.RawMessage, error) {
	key, runKey, err := e.encodeKey(key)
	if err != nil {
		return nil, err
	}
	var info RunInfo
	raw, err := e.runWaiting(ctx, key, runKey, in, rc, &info)
	if rc.report != nil {
		*rc.report = info
	}
	return raw, err
}

func (e *engine) runWaiting(ctx context.Context, key Key, runKey string, in *payload, rc runConfig, info *RunInfo) (json.RawMessage, error) {
	end := e.clk.Mono() + rc.wait
	for {
		raw, err := e.once(ctx, key, runKey, in, e.leaseOf(rc), info)
		if rc.wait <= 0 || !errors.Is(err, ErrInProgress) || !e.awaitHolder(ctx, runKey, end) {
			return raw, err
		}
	}
}

// leaseOf is the lease of one call's holder.
func (e *engine) leaseOf(rc runConfig) time.Duration {
	if rc.leaseAtMost == 0 {
		return e.lease
	}
	return min(e.lease, max(rc.leaseAtMost, shortestLease))
}

// awaitHolder waits until nobody seems to be at work on the run any more; false: the time is up. It only reads, which is
// cheaper than trying to take the run up.
func (e *engine) awaitHolder(ctx context.Context, runKey string, end time.Duration) bool {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		left := end - e.clk.Mono()
		if left <= 0 || e.clk.Sleep(ctx, min(pause, left)) != nil {
			return false
		}
		rec, err := e.store.Get(ctx, runKey)
		if err != nil || resting(rec) || !rec.LeaseLive(e.now()) && !e.running(runKey) {
			return true
		}
	}
}

func (e *engine) once(ctx context.Context, key Key, runKey string, in *payload, lease time.Duration, info *RunInfo) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Kind: ErrInterrupted, Key: key, Err: causeOf(ctx)}
	}
	h, rested, err := e.take(ctx, key, runKey, in, lease)
	switch {
	case err != nil:
		return nil, err
	case rested != nil:
		return e.replay(ctx, key, rested, info)
	}
	return h.toRest(ctx, info)
}

func (e *engine) replay(ctx context.Context, key Key, rec *state.Record, info *RunInfo) (json.RawMessage, error) {
	raw, err := e.verdict(key, rec, nil)
	*info = RunInfo{Replayed: true, Resumed: rec.Runs > 1, Status: rec.Status, Runs: rec.Runs}
	if ce := e.log.Check(zap.InfoLevel, "job_skipped"); ce != nil {
		ce.Write(zap.String("key", rec.Key), zap.String("status", string(rec.Status)))
	}
	e.tellRun(ctx, e.listener.RunReplayed, RunEvent{Key: key, Status: rec.Status, Runs: rec.Runs, Err: err})
	return raw, err
}

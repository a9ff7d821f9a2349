package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// holder has taken a run up. One goroutine drives it; beside that only its lease's timer touches it, under mu.
//
// rec is the record as this holder knows it, which its fenced writes keep exact: whoever else may change it (a cancel
// request, a relay) touches only Cancel, Outbox and Audit.
type holder struct {
	e       *engine
	p       *plan
	key     Key
	runKey  string
	owner   string
	lease   time.Duration
	created bool
	trouble *stepTrouble // a When that can't be evaluated

	mu     sync.Mutex // one write at a time, heartbeats included
	rec    *state.Record
	cancel *state.CancelRequest // noticed, and not obeyed yet
	doubt  *state.Change        // a heartbeat that was sent and never answered
	made   time.Duration        // when the last change, and the lease that it brings, was made, by the monotonic clock
	doubts time.Duration        // the same of doubt
	ended  error                // after which nothing is written: the lease is lost, or a write's answer is

	leaseEnd atomic.Int64 // by the monotonic clock
	writing  atomic.Int64 // when the store call at hand began, by the monotonic clock; 0: none is
	timing   sync.Mutex   // guards timer and closed; never held during a write
	timer    clock.Timer
	closed   bool
	outputs  []json.RawMessage
	decoded  any           // the input, see drive.Call
	claimed  time.Duration // when the closing write's claim for the relay began, by the monotonic clock

	work   stepWork // the step at hand, on the way forward
	worker worker   // where the user's functions are called
	live   error    // what made the run fail or stop, as this call met it
}

// errCancelRequested: a forward write was refused because a cancel request is stored.
var errCancelRequested = errors.New("a cancel request is stored")

// errReleased: the holder has let the run go.
var errReleased = errors.New("the run has been let go")

// errLeaseOver is the cause of a context that ends because the lease could not be renewed in time.
var errLeaseOver = errors.New("the lease could not be renewed in time")

// runContext is the caller's context, ended as well when the lease is lost.
type runContext struct {
	context.Context
	// undo is what compensations get: the caller's cancellation does not end it.
	undo context.Context
	// writes is what the store gets: ended by the caller's deadline, or when an answer is a whole lease late.
	writes context.Context
	// deadline of the caller; zero when there is none.
	deadline time.Time
}

// callersContext is what functions get that are called before the run is held.
func callersContext(ctx context.Context) *runContext {
	run := &runContext{Context: ctx, undo: ctx, writes: ctx}
	run.deadline, _ = ctx.Deadline()
	return run
}

// hold starts the lease's timer and makes the contexts of the run; release ends both.
func (h *holder) hold(ctx context.Context) (run *runContext, release func()) {
	detached := context.WithoutCancel(ctx)
	run = &runContext{}
	var stopWrites context.CancelFunc
	if deadline, ok := ctx.Deadline(); ok {
		run.deadline = deadline
		run.writes, stopWrites = context.WithDeadline(detached, deadline)
	} else {
		run.writes, stopWrites = context.WithCancel(detached)
	}
	var stop, stopUndo context.CancelCauseFunc
	run.Context, stop = context.WithCancelCause(ctx)
	run.undo, stopUndo = context.WithCancelCause(detached)
	lost := func(cause error) { stop(cause); stopUndo(cause) }
	h.timing.Lock()
	first := max(h.lease/40, min(h.lease/3, h.leaseLeft()-h.lease*6/10)) // less when the take-up took its time
	h.timer = h.e.clk.AfterFunc(first, func() { h.watch(run, lost, stopWrites) })
	h.timing.Unlock()
	return run, func() {
		h.timing.Lock()
		h.closed = true
		h.timer.Stop()
		h.timing.Unlock()
		lost(context.Canceled)
		stopWrites()
		h.mu.Lock() // a heartbeat at hand ends first, and no other follows
		defer h.mu.Unlock()
		if h.ended == nil {
			h.ended = errReleased
		}
	}
}

// leaseFrom renews the lease as of the moment at which the write was made: sent again later, it still brings that one.
func (h *holder) leaseFrom(made time.Duration) { h.leaseEnd.Store(int64(made + h.lease)) }

// leaseLeft is how long a function may still be started, by the monotonic clock.
func (h *holder) leaseLeft() time.Duration {
	return time.Duration(h.leaseEnd.Load()) - h.lease/20 - h.e.clk.Mono()
}

// watch is the lease's timer: it renews the lease when a third of it has passed, ends the functions' contexts before it
// ends, and a store call that is still unanswered a whole lease later.
func (h *holder) watch(run *runContext, lost func(error), stopWrites func()) {
	left := h.leaseLeft()
	switch {
	case left <= 0:
		lost(errLeaseOver)
		if began := h.writing.Load(); began != 0 && h.e.clk.Mono()-time.Duration(began) >= h.lease {
			stopWrites()
			return
		}
		h.rearm(h.lease / 4)
		return
	case left > h.lease*6/10+h.lease/40: // renewed by a step's own write
		h.rearm(left - h.lease*6/10)
		return
	}
	if h.mu.TryLock() { // otherwise a write is under way, which renews the lease itself
		ctx, cancel := h.e.clk.WithTimeout(run.writes, left)
		err := h.renew(ctx)
		cancel()
		h.mu.Unlock()
		if errors.Is(err, ErrLeaseLost) {
			lost(err)
			return
		}
	}
	h.rearm(min(h.lease/20, h.leaseLeft()))
}

func (h *holder) rearm(d time.Duration) {
	h.timing.Lock()
	defer h.timing.Unlock()
	if !h.closed {
		h.timer.Reset(max(d, h.lease/40))
	}
}

// renew is the heartbeat. A cancel request is noticed and stays; the function at hand is not interrupted by it.
func (h *holder) renew(ctx context.Context) error {
	edit := func(ch *state.Change) { ch.IfNoCancel = h.cancel == nil && h.rec.Status == state.StatusInProgress }
	err := h.send(ctx, edit, h.keepLease)
	if errors.Is(err, errCancelRequested) {
		err = h.send(ctx, edit, h.keepLease)
	}
	return err
}

// keepLease applies a heartbeat: it leaves alone what the driving goroutine reads without the lock.
func (h *holder) keepLease(ch *state.Change) error {
	h.rec.Revision, h.rec.WriteID = h.rec.Revision+1, ch.WriteID
	h.rec.LeaseUntil, h.rec.UpdatedAt = ch.LeaseUntil, ch.UpdatedAt
	return nil
}

// applyAll applies a change that is made already. The store has found no claim on the outbox that is live: one that this
// holder has seen was released since.
func (h *holder) applyAll(ch *state.Change) error {
	if ch.Claim != nil {
		h.rec.Outbox.Token, h.rec.Outbox.ClaimedUntil = "", time.Time{}
	}
	return ch.Apply(h.rec)
}

// write makes a change to the record: edit gets one that leaves everything as it is and renews the lease.
//
// It returns nil when the change is recorded, errCancelRequested when edit asked for IfNoCancel and there is a request,
// an [*Error] of ErrLeaseLost when another holder has the run, ErrTooLarge as it is, and an [*Error] of ErrInterrupted
// that wraps ErrStore when the answer stays in doubt; nothing may be written after that.
func (h *holder) write(run *runContext, edit func(*state.Change)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.send(run.writes, edit, h.applyAll)
	if h.doubt != nil {
		h.doubt, h.ended = nil, err
	}
	return err
}

func (h *holder) send(ctx context.Context, edit func(*state.Change), applied func(*state.Change) error) error {
	if h.ended != nil {
		return h.ended
	}
	if err := h.resolve(ctx); err != nil {
		return err
	}
	ch := h.change()
	made := h.made
	edit(ch)
	for i := range ch.Messages {
		ch.Messages[i].Time = ch.UpdatedAt
	}
	err := h.commit(ctx, ch, made)
	if ch.Claim != nil && errors.Is(err, errClaimTaken) {
		ch.Claim = nil
		err = h.commit(ctx, ch, made)
	}
	if err != nil {
		return err
	}
	return applied(ch)
}

// resolve settles a heartbeat whose answer never came, before the next write.
func (h *holder) resolve(ctx context.Context) error {
	ch := h.doubt
	if ch == nil {
		return nil
	}
	switch err := h.commit(ctx, ch, h.doubts); {
	case err == nil:
		return h.keepLease(ch)
	case errors.Is(err, errCancelRequested):
		h.doubt = nil // it was not made
		return nil
	default:
		return err
	}
}

// errClaimTaken: a relay's claim is live, so the closing write can't carry one.
var errClaimTaken = errors.New("another relay has claimed the run's messages")

// commit sends one change until its answer is known.
func (h *holder) commit(ctx context.Context, ch *state.Change, made time.Duration) error {
	err := h.e.insist(ctx, func() error {
		h.writing.Store(max(1, int64(h.e.clk.Mono())))
		defer h.writing.Store(0)
		return own(h.e.store.Commit(ctx, ch), ch)
	})
	if err == nil || definite(err) {
		h.doubt = nil
	} else {
		h.doubt, h.doubts = ch, made
	}
	if err == nil {
		h.leaseFrom(made)
		return nil
	}
	var refused *state.ConflictError
	switch {
	case errors.As(err, &refused):
		return h.refused(refused, ch)
	case definite(err):
		return fmt.Errorf("run %s: %w", h.runKey, err)
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Step: h.rec.CurrentStep, Err: fmt.Errorf("%w: it is unknown whether the last write was made: %w", ErrStore, err)}
}

// refused looks at what is stored in place of what this holder knows.
func (h *holder) refused(c *state.ConflictError, ch *state.Change) error {
	now := c.Current
	if now != nil && now.Owner == ch.IfOwner && now.Revision == ch.IfRevision { // the fence holds: it was something beside it
		if ch.IfNoCancel && now.Cancel != nil {
			h.cancel = now.Cancel
			return errCancelRequested
		}
		if ch.Claim != nil {
			return errClaimTaken
		}
	}
	h.ended = &Error{Kind: ErrLeaseLost, Key: h.key, Step: h.rec.CurrentStep, RetryAfter: h.e.lease}
	return h.ended
}

// cancelNoticed is the cancel request that this holder knows of.
func (h *holder) cancelNoticed() *state.CancelRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cancel
}

// change leaves the record as it is and renews the lease.
func (h *holder) change() *state.Change {
	h.made = h.e.clk.Mono()
	r, now := h.rec, h.e.now()
	return &state.Change{
		Key: h.runKey, IfOwner: h.owner, IfRevision: r.Revision, WriteID: newID(),
		Owner: h.owner, Runs: r.Runs, Status: r.Status, EndsAs: r.EndsAs, CurrentStep: r.CurrentStep,
		LeaseUntil: now.Add(h.lease), NotBefore: r.NotBefore, UpdatedAt: now, Failure: r.Failure,
	}
}

// layDown makes the change one after which nobody holds the run.
func layDown(ch *state.Change) {
	ch.Owner, ch.LeaseUntil = "", time.Time{}
}

// current is the name of the first unfinished step.
func (h *holder) current() string {
	if i := h.rec.Next(); i < len(h.rec.Steps) {
		return h.rec.Steps[i].Name
	}
	return ""
}

// newCall is what one call of a function of the step at i is given: the outputs of the steps before it.
func (h *holder) newCall(i int, phase drive.Phase, attempt int) *drive.Call {
	name := ""
	if i < len(h.p.steps) {
		name = h.p.steps[i].Name
	}
	return &drive.Call{
		Key: h.key, RunKey: h.runKey, Step: name, Phase: phase, Attempt: attempt, Resumed: h.rec.Runs > 1,
		Input: h.rec.Input, Outputs: h.outputsBefore(i), Index: h.p.index, Decoded: &h.decoded,
	}
}

// outputsBefore are the outputs of the first n steps. The slice only ever grows behind what was handed out, so that a
// function that outlives its call never sees it change.
func (h *holder) outputsBefore(n int) []json.RawMessage {
	for i := len(h.outputs); i < n && i < len(h.rec.Steps); i++ {
		if h.outputs == nil {
			h.outputs = make([]json.RawMessage, 0, len(h.p.steps))
		}
		h.outputs = append(h.outputs, h.rec.Steps[i].Output)
	}
	return h.outputs[:min(n, len(h.outputs)):min(n, len(h.outputs))]
}

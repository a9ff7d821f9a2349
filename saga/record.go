package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// forwardWrite makes a forward write, if no cancel has been requested: otherwise, what the write would have recorded of
// the steps and the messages is recorded together with the turn. Behind a pivot that is done the request is dropped, and
// before one that may have happened it has to wait.
func (h *holder) forwardWrite(run *runContext, edit func(*state.Change)) error {
	forwards := func(ch *state.Change) {
		edit(ch)
		if h.cancel == nil {
			ch.IfNoCancel = true
		} else if !h.backwards(ch, func() { h.obey(ch, h.cancel) }) {
			h.dropCancel(ch)
		}
	}
	err := h.write(run, forwards)
	if errors.Is(err, errCancelRequested) { // noticed just now
		err = h.write(run, forwards)
	}
	return h.overtaken(err)
}

// overtaken forgets a request that the write just made has dropped.
func (h *holder) overtaken(err error) error {
	if err == nil && h.rec.Pivot != "" && h.rec.Done(h.rec.Pivot) {
		h.mu.Lock()
		h.cancel = nil
		h.mu.Unlock()
	}
	return err
}

// backwards turns a forward change into one that goes backwards, unless the pivot as it would be recorded forbids it.
func (h *holder) backwards(ch *state.Change, turn func()) bool {
	if !compensate.MayGoBack(h.after(ch), h.rec.Pivot) {
		return false
	}
	ch.Response, ch.ExpiresAt, ch.Claim = nil, time.Time{}, nil
	ch.Owner, ch.LeaseUntil, ch.NotBefore = h.owner, ch.UpdatedAt.Add(h.lease), time.Time{}
	turn()
	return true
}

// dropCancel drops a request that a pivot has overtaken, and says so in the audit.
func (h *holder) dropCancel(ch *state.Change) {
	if h.cancel == nil || h.rec.Pivot == "" {
		return
	}
	for _, s := range ch.Steps {
		if s.Name == h.rec.Pivot && s.Status == state.StepDone {
			ch.DropCancel = true
			ch.Audit = append(ch.Audit, cancelDropped(ch.UpdatedAt, s.Name))
		}
	}
}

// after is the step entries as they will be after the change.
func (h *holder) after(ch *state.Change) []state.StepRecord {
	out := append([]state.StepRecord(nil), h.rec.Steps...)
	for _, s := range ch.Steps {
		if s.Index == len(out) {
			out = append(out, s.StepRecord)
		}
		out[s.Index] = s.StepRecord
	}
	return out
}

// obey makes a change the one that turns the run round because of a cancel.
func (h *holder) obey(ch *state.Change, c *state.CancelRequest) {
	h.live = nil
	h.turnRound(ch, state.StatusFailed, &state.Failure{Code: CodeCancelled, Message: state.Cut("cancelled: " + c.Reason), At: ch.UpdatedAt})
}

// turnRound makes a change the one that turns the run round.
func (h *holder) turnRound(ch *state.Change, endsAs state.Status, f *state.Failure) {
	ch.Status, ch.EndsAs, ch.Failure = state.StatusCompensating, endsAs, f
	after := h.after(ch)
	p := compensate.NewPlan(after, h.p.means)
	f.NotUndone = p.NotUndone
	ch.CurrentStep = ""
	if len(p.Undo) > 0 {
		ch.CurrentStep = after[p.Undo[0]].Name
	}
}

// turn writes COMPENSATING, with the entry of the step at hand, before the first undo.
func (h *holder) turn(run *runContext, w *stepWork, edit func(*state.Change)) error {
	return h.write(run, func(ch *state.Change) {
		ch.Steps = []state.StepChange{w.change()}
		edit(ch)
	})
}

// fail is a permanent failure of the step at hand: backwards, or blocked when the pivot forbids that.
func (h *holder) fail(run *runContext, w *stepWork, code string, cause error) error {
	f := h.e.failure(w.s.Name, code, cause)
	h.live = cause
	if w.rec.Error == nil {
		w.rec.Error = f
	}
	if h.mustGoOn(w) {
		return h.block(run, w, code, cause)
	}
	return h.write(run, func(ch *state.Change) {
		ch.Steps, ch.Messages = append(ch.Steps, w.change()), w.messages
		h.turnRound(ch, state.StatusFailed, f)
	})
}

// mustGoOn: there is no way back over a pivot that is done or may be, and none from a step behind it.
func (h *holder) mustGoOn(w *stepWork) bool {
	return !compensate.MayGoBack(h.with(w), h.rec.Pivot)
}

// block lays the run down for an operator.
func (h *holder) block(run *runContext, w *stepWork, code string, cause error) error {
	f := h.e.failure(w.s.Name, code, cause)
	h.live = cause
	return h.forwardWrite(run, func(ch *state.Change) {
		ch.Steps, ch.Messages = append(ch.Steps, w.change()), w.messages
		ch.Status, ch.Failure, ch.CurrentStep = state.StatusBlocked, f, w.s.Name
		layDown(ch)
	})
}

// interrupt lays the run down, so that the same key or recovery goes on.
func (h *holder) interrupt(run *runContext, w *stepWork, class errorClass, cause error) error {
	if cause == nil {
		cause = errNoTime
	}
	h.live = cause
	wait := class.wait
	if class.delayed {
		wait = class.delay
	}
	err := h.forwardWrite(run, func(ch *state.Change) {
		ch.Steps = append(ch.Steps, w.change())
		ch.Status, ch.CurrentStep = state.StatusInterrupted, w.s.Name
		ch.NotBefore = time.Time{}
		if class.delayed {
			ch.NotBefore = notBefore(ch.UpdatedAt, wait)
		}
		layDown(ch)
	})
	if err != nil || h.rec.Status != state.StatusInterrupted {
		return err
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Step: w.s.Name, Code: h.codeOr(cause, ""), RetryAfter: wait, Err: cause}
}

// notBefore is d, however long, from now, up to the next millisecond.
func notBefore(now time.Time, d time.Duration) time.Time {
	return state.Milli(now.Add(d).Add(time.Millisecond - 1))
}

// done records a step that returned nil; when it is the last one that runs, the same write completes the run.
func (h *holder) done(run *runContext, w *stepWork, r drive.Result) error {
	w.rec.Status, w.rec.Unknown, w.rec.Error, w.rec.EndedAt = state.StepDone, false, nil, h.e.now()
	w.rec.Output = r.Output
	if r.Unencodable != nil {
		return h.unrecordable(run, w, fmt.Errorf("its result can't be encoded: %w", r.Unencodable))
	}
	old := h.rec.Steps[w.i]
	h.rec.Steps[w.i] = w.rec // for the functions below: they see the run as it will be
	skipped, trouble, left := h.skips(run, w.i+1)
	if left != nil {
		h.rec.Steps[w.i] = old
		return h.abandoned(h.p.steps[w.i+1+len(skipped)].Name, left)
	}
	next := w.i + 1 + len(skipped)
	var response json.RawMessage
	var bad error
	if trouble == nil && next == len(h.rec.Steps) {
		response, bad = h.result(run)
	}
	h.rec.Steps[w.i] = old
	if trouble != nil {
		return h.doneButStuck(run, w, skipped, trouble)
	}
	err := h.forwardWrite(run, func(ch *state.Change) {
		ch.Steps = append(append(ch.Steps, w.change()), skipped...)
		ch.Messages = w.messages
		switch {
		case next < len(h.rec.Steps):
			ch.CurrentStep = h.rec.Steps[next].Name
		case bad != nil:
			ch.Status, ch.CurrentStep = state.StatusInterrupted, ""
			layDown(ch)
		default:
			h.completing(ch, response)
		}
	})
	switch {
	case errors.Is(err, state.ErrTooLarge):
		return h.tooLarge(run, w, skipped, response != nil, err)
	case err != nil:
		return err
	}
	h.recorded(run, w, skipped)
	if h.rec.Status == state.StatusInterrupted {
		h.live = bad
		return &Error{Kind: ErrInterrupted, Key: h.key, Err: bad}
	}
	return nil
}

func (h *holder) recorded(run *runContext, w *stepWork, skipped []state.StepChange) {
	h.e.tellStep(run, h.e.listener.StepDone, StepEvent{Key: h.key, Step: w.s.Name, Attempt: w.rec.Attempts})
	for _, s := range skipped {
		h.e.tellStep(run, h.e.listener.StepSkipped, StepEvent{Key: h.key, Step: s.Name})
	}
}

// completing makes a change the one that completes the run.
func (h *holder) completing(ch *state.Change, response json.RawMessage) {
	ch.Status, ch.CurrentStep, ch.Response = state.StatusCompleted, "", response
	h.ending(ch)
}

// ending is what every write that ends a run has in common: the expiry, unless messages are left, and then the relay's
// claim on them.
func (h *holder) ending(ch *state.Change) {
	layDown(ch)
	ch.NotBefore = time.Time{}
	if len(ch.Messages) == 0 {
		ch.ExpiresAt = h.rec.Expiry(ch.UpdatedAt)
	}
	if h.e.relay != nil && len(ch.Messages)+len(h.rec.Outbox.Messages) > 0 {
		h.claimed = h.e.clk.Mono()
		ch.Claim = &state.Claim{Token: newID(), Until: state.Milli(ch.UpdatedAt.Add(h.e.relay.Lease()))}
	}
}

// result works the run's result out.
func (h *holder) result(run *runContext) (json.RawMessage, error) {
	c := h.newCall(len(h.rec.Steps), drive.Output, 0)
	r, _ := h.quick(run, c, h.p.result)
	if r.Err != nil {
		return nil, fmt.Errorf("the result function of %s: %w", h.p.name, r.Err)
	}
	return r.Output, nil
}

// complete writes COMPLETED when no step's own write could: everything was skipped, an operator marked the last step
// done, or the result could not be worked out before.
func (h *holder) complete(run *runContext) error {
	if c := h.cancelNoticed(); c != nil && compensate.MayGoBack(h.rec.Steps, h.rec.Pivot) {
		return h.write(run, func(ch *state.Change) { h.obey(ch, c) })
	}
	if cause := causeOf(run); cause != nil {
		return h.layDownComplete(run, cause)
	}
	response, err := h.result(run)
	if err != nil {
		return h.layDownComplete(run, err)
	}
	err = h.forwardWrite(run, func(ch *state.Change) { h.completing(ch, response) })
	if errors.Is(err, state.ErrTooLarge) {
		return h.layDownComplete(run, fmt.Errorf("the result of %s: %w", h.p.name, err))
	}
	return err
}

func (h *holder) layDownComplete(run *runContext, cause error) error {
	h.live = cause
	err := h.forwardWrite(run, func(ch *state.Change) {
		ch.Status, ch.CurrentStep = state.StatusInterrupted, ""
		layDown(ch)
	})
	if err != nil || h.rec.Status != state.StatusInterrupted {
		return err
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Err: cause}
}

// tooLarge: the store refused a step's record for its size, and wrote nothing. If it was the run's result that was too
// much, the step is recorded without completing the run; if it was the step's own, it is recorded as done without a
// result, so that its effect is never repeated.
func (h *holder) tooLarge(run *runContext, w *stepWork, skipped []state.StepChange, completing bool, cause error) error {
	if completing {
		err := h.forwardWrite(run, func(ch *state.Change) {
			ch.Steps, ch.Messages = append(append(ch.Steps, w.change()), skipped...), w.messages
			ch.Status, ch.CurrentStep = state.StatusInterrupted, ""
			layDown(ch)
		})
		if err == nil {
			h.recorded(run, w, skipped)
			h.live = fmt.Errorf("the result of %s: %w", h.p.name, cause)
			if h.rec.Status == state.StatusInterrupted {
				return &Error{Kind: ErrInterrupted, Key: h.key, Err: h.live}
			}
			return nil
		}
		if !errors.Is(err, state.ErrTooLarge) {
			return err
		}
	}
	return h.unrecordable(run, w, fmt.Errorf("its result can't be stored: %w", cause))
}

// unrecordable records a step as done without a result, and goes backwards, or is blocked from the pivot on. When there is no
// room for that either, it is the messages that are too much.
func (h *holder) unrecordable(run *runContext, w *stepWork, cause error) error {
	w.rec.Output = nil
	w.rec.Error = h.e.failure(w.s.Name, CodeUnrecordable, cause)
	err := h.fail(run, w, CodeUnrecordable, cause)
	if !errors.Is(err, state.ErrTooLarge) {
		return err
	}
	stored := h.rec.Steps[w.i]
	stored.Unknown, stored.Attempts, stored.StartedAt = true, w.rec.Attempts, w.rec.StartedAt
	w.rec, w.messages = stored, nil
	return h.fail(run, w, CodeInvalidMessage, fmt.Errorf("its messages can't be stored: %w", err))
}

// doneButStuck records a step that is done together with the failure of the next one, whose When can't be evaluated.
func (h *holder) doneButStuck(run *runContext, w *stepWork, skipped []state.StepChange, t *stepTrouble) error {
	f := h.e.failure(h.p.steps[t.step].Name, CodeWhen, t.err)
	h.live = t.err
	err := h.forwardWrite(run, func(ch *state.Change) {
		ch.Steps, ch.Messages = append(append(ch.Steps, w.change()), skipped...), w.messages
		if !h.backwards(ch, func() { h.turnRound(ch, state.StatusFailed, f) }) {
			ch.Status, ch.Failure, ch.CurrentStep = state.StatusBlocked, f, f.Step
			layDown(ch)
		}
	})
	if errors.Is(err, state.ErrTooLarge) {
		return h.tooLarge(run, w, nil, false, err)
	}
	if err == nil {
		h.recorded(run, w, skipped)
	}
	return err
}

package saga

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// undoer is a holder on the way back.
type undoer struct {
	h   *holder
	run *runContext
}

var _ compensate.Undoer = (*undoer)(nil)

// backward undoes what is to be undone until the run rests.
func (h *holder) backward(run *runContext) error {
	err := compensate.Run(run, &undoer{h, run}, h.p.means)
	if errors.Is(err, errUndoBlocked) {
		return nil
	}
	return err
}

// errUndoBlocked ends the loop: the run is recorded as BLOCKED, and nobody holds it any more.
var errUndoBlocked = errors.New("a compensation failed for good")

// Steps are the entries as they are recorded now.
func (u *undoer) Steps() []state.StepRecord { return u.h.rec.Steps }

// Ready lays the run down when the caller has gone or there is no time for another undo. It keeps its direction.
func (u *undoer) Ready(context.Context) error {
	h := u.h
	if cause := causeOf(u.run); cause != nil {
		return u.rest(nil, errorClass{}, cause)
	}
	if over := h.tooLate(u.run, 0); over != nil {
		return u.rest(nil, errorClass{}, over)
	}
	if h.leaseLeft() <= 0 {
		return h.write(u.run, func(*state.Change) {})
	}
	return nil
}

// Undo undoes and records one step.
func (u *undoer) Undo(_ context.Context, i int, last bool, notUndone []string) error {
	h := u.h
	w := &stepWork{i: i, s: &h.p.steps[i], rec: h.rec.Steps[i]}
	if err := u.probe(w); err != nil {
		return err
	}
	policy := w.s.UndoRetry.Or(h.e.retry)
	waits := newBackOff(policy)
	for n := 1; ; n++ {
		if h.leaseLeft() <= 0 { // the probe, or the wait, took its time: another may have undone it meanwhile
			if err := h.write(u.run, func(ch *state.Change) { ch.Steps = []state.StepChange{w.change()} }); err != nil {
				return err
			}
		}
		messages, err := u.attempt(w)
		switch {
		case err == nil:
			return u.undone(w, messages, last, notUndone)
		case errors.Is(err, errAbandoned):
			return h.abandoned(w.s.Name, err)
		}
		if errors.Is(err, outbox.ErrInvalidMessage) {
			return u.block(w, CodeInvalidMessage, err)
		}
		class := classify(err)
		if class.permanent {
			return u.block(w, "", err)
		}
		w.rec.UndoError = h.e.failure(w.s.Name, "", err)
		w.rec.Status = state.StepCompensating
		class.wait = waits.NextBackOff()
		if class.delayed {
			class.wait = class.delay
		}
		if n >= policy.PerRun || !h.maySleep(u.run, class) || causeOf(u.run) != nil {
			return u.rest(w, class, err)
		}
		if err := w.noteAttempt(u.run, h.write); err != nil {
			return err
		}
		h.e.tellStep(u.run, h.e.listener.StepRetried, StepEvent{Key: h.key, Step: w.s.Name, Attempt: w.rec.UndoAttempts, Wait: class.wait, Err: err})
		if h.e.clk.Sleep(u.run, class.wait) != nil {
			return u.rest(w, class, err)
		}
	}
}

// probe asks about an unknown step before it is undone. It happened: that is recorded first, so that the compensation
// knows the result. It did not, as far as Probe knows: the compensation closes its key all the same.
func (u *undoer) probe(w *stepWork) error {
	h := u.h
	if w.rec.Status == state.StepStarted {
		w.rec.Unknown = true // which a compensation that fails must not make forget
	}
	if w.s.Probe == nil || !w.rec.Unknown || w.rec.Output != nil {
		return nil
	}
	h.outputs = nil
	found, r, err := h.ask(u.run.undo, u.run, w)
	switch {
	case errors.Is(err, errAbandoned):
		return h.abandoned(w.s.Name, err)
	case errors.Is(err, outbox.ErrInvalidMessage):
		return u.block(w, CodeInvalidMessage, fmt.Errorf("its Probe: %w", err))
	case err != nil:
		class := classify(err)
		class.wait = class.delay
		return u.rest(nil, class, fmt.Errorf("step %s: Probe: %w", w.s.Name, err))
	case !found:
		return nil
	}
	unknown := w.rec
	w.rec.Status, w.rec.Unknown, w.rec.Output, w.rec.EndedAt = state.StepDone, false, r.Output, h.e.now()
	err = h.write(u.run, func(ch *state.Change) {
		ch.Steps, ch.Messages = []state.StepChange{w.change()}, w.messages
	})
	if errors.Is(err, state.ErrTooLarge) {
		w.rec = unknown // there is no room for knowing it
		return nil
	}
	return err
}

// attempt calls the compensation once.
func (u *undoer) attempt(w *stepWork) ([]outbox.Message, error) {
	h := u.h
	w.rec.UndoAttempts++
	h.outputs = nil
	c := h.newCall(w.i, drive.Undo, w.rec.UndoAttempts)
	c.Outputs = h.outputsBefore(len(h.rec.Steps))
	c.Cause = h.e.asError(h.rec.Failure, h.live)
	known, output := w.rec.Output != nil, w.rec.Output
	r, err := h.call(u.run.undo, u.run, w.s, c, func(ctx context.Context, c *drive.Call) drive.Result { return w.s.Undo(ctx, c, known, output) })
	messages, bad := c.Close()
	switch {
	case err != nil:
		return nil, err
	case r.Err != nil:
		return nil, r.Err
	}
	return messages, bad
}

// undone records the undo; the last one ends the run.
func (u *undoer) undone(w *stepWork, messages []outbox.Message, last bool, notUndone []string) error {
	h := u.h
	w.rec.Status, w.rec.UndoError, w.rec.EndedAt = state.StepCompensated, nil, h.e.now()
	err := h.write(u.run, func(ch *state.Change) {
		ch.Steps, ch.Messages = []state.StepChange{w.change()}, messages
		if last {
			u.end(ch, notUndone)
			return
		}
		if p := compensate.NewPlan(h.after(ch), h.p.means); len(p.Undo) > 0 {
			ch.CurrentStep = h.rec.Steps[p.Undo[0]].Name
		}
	})
	if errors.Is(err, state.ErrTooLarge) { // the messages, then: the undo itself adds nothing
		return u.block(w, CodeInvalidMessage, err)
	}
	if err == nil {
		h.e.tellStep(u.run, h.e.listener.StepUndone, StepEvent{Key: h.key, Step: w.s.Name, Attempt: w.rec.UndoAttempts})
	}
	return err
}

// Finish ends a run with nothing left to undo.
func (u *undoer) Finish(_ context.Context, notUndone []string) error {
	return u.h.write(u.run, func(ch *state.Change) { u.end(ch, notUndone) })
}

func (u *undoer) end(ch *state.Change, notUndone []string) {
	ch.Status, ch.CurrentStep = ch.EndsAs, ""
	f := state.Failure{At: ch.UpdatedAt}
	if ch.Failure != nil {
		f = *ch.Failure
	}
	f.NotUndone = notUndone
	ch.Failure = &f
	u.h.ending(ch)
}

// block lays the run down for an operator: a compensation failed for good.
func (u *undoer) block(w *stepWork, code string, cause error) error {
	u.h.live = cause
	w.rec.Status, w.rec.UndoError = state.StepCompensating, u.h.e.failure(w.s.Name, code, cause)
	err := u.h.write(u.run, func(ch *state.Change) {
		ch.Steps = []state.StepChange{w.change()}
		ch.Status, ch.CurrentStep = state.StatusBlocked, w.s.Name
		layDown(ch)
	})
	if err != nil {
		return err
	}
	return errUndoBlocked
}

// rest lays the run down as COMPENSATING; recovery or the next call goes on backwards. w may be nil.
func (u *undoer) rest(w *stepWork, class errorClass, cause error) error {
	h := u.h
	h.live = cause
	err := h.write(u.run, func(ch *state.Change) {
		if w != nil {
			ch.Steps, ch.CurrentStep = []state.StepChange{w.change()}, w.s.Name
		}
		if class.delayed {
			ch.NotBefore = notBefore(ch.UpdatedAt, class.delay)
		}
		layDown(ch)
	})
	if err != nil {
		return err
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Step: h.rec.CurrentStep, Code: h.codeOr(cause, ""), RetryAfter: class.wait, Err: fmt.Errorf("going backwards: %w", cause)}
}

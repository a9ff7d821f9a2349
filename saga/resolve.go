package saga

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// probe asks the participant about an unknown step that is to be run again. It happened: the step is recorded as done,
// before anything else. It did not: the step is no longer unknown. No probe: it stays as it is.
func (h *holder) probe(run *runContext, w *stepWork) (over bool, err error) {
	if w.s.Probe == nil {
		return false, nil
	}
	found, r, err := h.ask(run, run, w)
	switch {
	case errors.Is(err, errAbandoned):
		return true, h.abandoned(w.s.Name, err)
	case errors.Is(err, outbox.ErrInvalidMessage):
		return true, h.fail(run, w, CodeInvalidMessage, fmt.Errorf("its Probe: %w", err))
	case err != nil:
		class := classify(err)
		class.wait = class.delay
		return true, h.interrupt(run, w, class, fmt.Errorf("its Probe: %w", err))
	case found:
		return true, h.done(run, w, r)
	}
	w.rec.Unknown = false
	w.rec.StartedAt = state.StepRecord{}.StartedAt // the key's age counts from a call that reached the participant
	return false, nil
}

// ask calls the probe, under a lease. Its messages are those of the step if it found it done.
func (h *holder) ask(ctx context.Context, run *runContext, w *stepWork) (found bool, r drive.Result, err error) {
	if h.leaseLeft() <= 0 {
		if err := h.write(run, func(*state.Change) {}); err != nil {
			return false, r, err
		}
	}
	c := h.newCall(w.i, drive.Probe, w.rec.Attempts)
	answer := make(chan bool, 1) // one that nobody waits for any more may still give it
	r, err = h.call(ctx, run, w.s, c, func(ctx context.Context, c *drive.Call) drive.Result {
		r, found := w.s.Probe(ctx, c)
		answer <- found
		return r
	})
	messages, bad := c.Close()
	switch {
	case err != nil:
		return false, r, err
	case r.Err != nil:
		return false, r, r.Err
	case bad != nil:
		return false, r, bad
	case <-answer:
		w.messages = messages
		return true, r, nil
	}
	return false, r, nil
}

// unresolved is an at-most-once step whose one call gave no definite answer: done if Probe says so, blocked if it says
// no or there is none. Without time to ask, the run is interrupted and the next take-up asks.
func (h *holder) unresolved(run *runContext, w *stepWork, cause error) error {
	if cause == nil {
		cause = errors.New("its one call ended without a definite answer")
	}
	if w.s.Probe == nil {
		return h.block(run, w, CodeUnresolved, fmt.Errorf("an at-most-once step without a Probe: %w", cause))
	}
	if ended := causeOf(run); ended != nil {
		return h.interrupt(run, w, errorClass{}, fmt.Errorf("%w: %w", ended, cause))
	}
	found, r, err := h.ask(run, run, w)
	switch {
	case errors.Is(err, errAbandoned):
		return h.abandoned(w.s.Name, err)
	case errors.Is(err, outbox.ErrInvalidMessage):
		return h.block(run, w, CodeInvalidMessage, fmt.Errorf("its Probe: %w", err))
	case err != nil:
		class := classify(err)
		class.wait = class.delay
		return h.interrupt(run, w, class, fmt.Errorf("its Probe: %w", err))
	case found:
		return h.done(run, w, r)
	}
	return h.block(run, w, CodeUnresolved, fmt.Errorf("an at-most-once step that Probe did not find: %w", cause))
}

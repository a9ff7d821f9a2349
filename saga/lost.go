package saga

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// payloadLost blocks a run of which the store has lost a payload (one that it keeps apart, and for a time alone): nothing
// of it can be run, and a person has to see to it. What rests already stays as it is. It returns the caller's error.
func (e *engine) payloadLost(ctx context.Context, key Key, rec *state.Record, cause error) error {
	if resting(rec) {
		return cause
	}
	p, err := e.mayTake(key, rec)
	if err != nil {
		return err
	}
	h, _, err := e.claim(ctx, key, p, rec, e.lease, func(h *holder, ch *state.Change) error {
		if rec.Status == state.StatusCompensating {
			h.markUndo(ch)
			return nil
		}
		ch.Status = state.StatusInProgress
		if i := rec.Next(); i < len(rec.Steps) {
			if s := h.mark(i); s != nil {
				ch.Steps = []state.StepChange{{Index: i, StepRecord: *s}}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if h == nil { // somebody else was quicker, and meets the same
		return &Error{Kind: ErrInProgress, Key: key, RetryAfter: e.lease}
	}
	h.live = cause
	if err := h.blockLost(ctx, cause); err != nil {
		return h.asRunError(err)
	}
	_, err = e.verdict(key, h.rec, cause)
	h.report(ctx, err)
	return err
}

func (h *holder) blockLost(ctx context.Context, cause error) error {
	defer h.worker.rest()
	run, release := h.hold(ctx)
	defer release()
	f := h.e.failure(h.rec.CurrentStep, CodePayloadLost, cause)
	return h.write(run, func(ch *state.Change) {
		ch.Status = state.StatusBlocked
		if i := h.rec.StepIndex(h.rec.CurrentStep); ch.EndsAs != "" && i >= 0 {
			s := h.rec.Steps[i]
			s.UndoError = f
			ch.Steps = []state.StepChange{{Index: i, StepRecord: s}}
		} else {
			ch.Failure = f
		}
		layDown(ch)
	})
}

package saga

import (
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// toRest drives the run until it rests, and tells the caller and everyone else what came of it.
func (h *holder) toRest(ctx context.Context, info *RunInfo) (json.RawMessage, error) {
	h.announce(ctx)
	err := h.drive(ctx)
	*info = RunInfo{Resumed: h.rec.Runs > 1, Status: h.rec.Status, Runs: h.rec.Runs}
	var raw json.RawMessage
	if err == nil {
		raw, err = h.e.verdict(h.key, h.rec, h.live)
	}
	err = h.asRunError(err)
	h.report(ctx, err)
	if h.rec.Status.Ended() || h.rec.Status == state.StatusBlocked {
		h.deliver(ctx)
	}
	return raw, err
}

func (h *holder) announce(ctx context.Context) {
	ev := RunEvent{Key: h.key, Status: h.rec.Status, Runs: h.rec.Runs}
	if h.created {
		h.e.tellRun(ctx, h.e.listener.RunStarted, ev)
		for _, s := range h.rec.Steps {
			if s.Status == state.StepSkipped {
				h.e.tellStep(ctx, h.e.listener.StepSkipped, StepEvent{Key: h.key, Step: s.Name})
			}
		}
		return
	}
	h.e.tellRun(ctx, h.e.listener.RunResumed, ev)
}

func (h *holder) drive(ctx context.Context) error {
	h.cancel = h.rec.Cancel
	defer h.worker.rest()
	run, release := h.hold(ctx)
	defer release()
	if err := h.forward(run); err != nil {
		return err
	}
	if h.rec.Status == state.StatusCompensating {
		return h.backward(run)
	}
	return nil
}

// asRunError makes sure that what the caller gets is an *Error.
func (h *holder) asRunError(err error) error {
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, state.ErrTooLarge):
		return &Error{Kind: ErrTooLarge, Key: h.key, Step: h.rec.CurrentStep, Err: err}
	}
	return &Error{Kind: ErrInterrupted, Key: h.key, Step: h.rec.CurrentStep, Err: errors.Join(ErrStore, err)}
}

func (h *holder) report(ctx context.Context, err error) {
	e, l := h.e, h.e.listener
	ev := RunEvent{Key: h.key, Status: h.rec.Status, Runs: h.rec.Runs, Err: err}
	fields := func() []zap.Field {
		f := []zap.Field{zap.String("key", h.runKey), zap.String("status", string(h.rec.Status)), zap.Int("runs", h.rec.Runs)}
		var is *Error
		if errors.As(err, &is) {
			f = append(f, zap.String("step", is.Step), zap.String("code", is.Code), zap.Strings("not_undone", is.NotUndone))
		}
		return f
	}
	log := func(write func(string, ...zap.Field), message string) { write(message, fields()...) }
	switch {
	case errors.Is(err, ErrLeaseLost):
		log(e.log.Warn, "lease_lost")
		e.tellRun(ctx, l.LeaseLost, ev)
	case h.rec.Status == state.StatusCompleted:
		e.tellRun(ctx, l.RunCompleted, ev)
	case h.rec.Status.Ended():
		log(e.log.Error, "run_failed")
		e.tellRun(ctx, l.RunFailed, ev)
	case h.rec.Status == state.StatusBlocked:
		log(e.log.Error, "run_blocked")
		e.tellRun(ctx, l.RunBlocked, ev)
	default:
		log(e.log.Warn, "run_interrupted")
		e.tellRun(ctx, l.RunInterrupted, ev)
	}
}

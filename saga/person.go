package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// cancel stores the request and, when nobody is at work, undoes the run at once.
func (e *engine) cancel(ctx context.Context, key Key, reason string) error {
	key, runKey, err := e.encodeKey(key)
	if err != nil {
		return err
	}
	req := state.CancelRequest{Reason: state.Cut(reason), Actor: state.Cut(state.Actor(ctx)), At: e.now()}
	if err := e.operator().requestCancel(ctx, runKey, req); err != nil {
		return e.storeError(key, err)
	}
	rec, err := e.get(ctx, key, runKey)
	if err != nil || !e.obeysAtOnce(rec) {
		return nil // the request is stored; whoever takes the run up obeys it
	}
	if h, _, err := e.take(ctx, key, runKey, nil, e.lease); err == nil && h != nil {
		_, _ = h.toRest(ctx, &RunInfo{})
	}
	return nil
}

// obeysAtOnce tells whether taking the run up leads backwards, or at least asks whether it may. A pivot that may have
// happened and that nobody can be asked about would be tried again first, which is not what a call of Cancel should do.
func (e *engine) obeysAtOnce(rec *state.Record) bool {
	if resting(rec) {
		return false
	}
	p, known := e.plan.of(rec.Version)
	i := rec.StepIndex(rec.Pivot)
	if rec.Status == state.StatusCompensating || i < 0 || !known || i >= len(p.steps) {
		return compensate.MayGoBack(rec.Steps, rec.Pivot)
	}
	s, pivot := &rec.Steps[i], &p.steps[i]
	died := rec.Status == state.StatusInProgress && rec.Next() == i && !pivot.AtMostOnce
	if !s.MayHaveHappened() && !died {
		return true
	}
	return s.Status == state.StepPending && pivot.Probe != nil
}

// reverse undoes a completed run.
func (e *engine) reverse(ctx context.Context, key Key, reason string) error {
	key, runKey, err := e.encodeKey(key)
	if err != nil {
		return err
	}
	rec, err := e.get(ctx, key, runKey)
	for range 16 {
		if err != nil {
			return err
		}
		var h *holder
		switch {
		case rec == nil:
			return &Error{Kind: ErrNotFound, Key: key}
		case rec.Status == state.StatusReversed:
			return nil
		case rec.Status == state.StatusCompleted:
			h, rec, err = e.claimReverse(ctx, key, rec, reason)
		case rec.Status == state.StatusCompensating && rec.EndsAs == state.StatusReversed:
			h, rec, _, err = e.takeUp(ctx, key, rec, nil, e.lease)
		default:
			return &Error{Kind: ErrNotAllowed, Key: key, Err: fmt.Errorf("only a completed run can be reversed; it is %s", rec.Status)}
		}
		if h == nil {
			continue
		}
		if _, err := h.toRest(ctx, &RunInfo{}); !errors.Is(err, ErrReversed) {
			return err
		}
		return nil
	}
	return &Error{Kind: ErrInProgress, Key: key, RetryAfter: e.lease}
}

func (e *engine) claimReverse(ctx context.Context, key Key, rec *state.Record, reason string) (*holder, *state.Record, error) {
	p, known := e.plan.of(rec.Version)
	if !known {
		return nil, nil, &Error{Kind: ErrDefinitionChanged, Key: key, Err: fmt.Errorf("it is of version %d", rec.Version)}
	}
	if err := p.fits(rec); err != nil {
		return nil, nil, &Error{Kind: ErrDefinitionChanged, Key: key, Err: err}
	}
	return e.claim(ctx, key, p, rec, e.lease, func(h *holder, ch *state.Change) error {
		f := &state.Failure{Code: CodeReversed, Message: state.Cut("reversed: " + reason), At: ch.UpdatedAt}
		h.turnRound(ch, state.StatusReversed, f)
		ch.Audit = []state.AuditEntry{auditLine(ctx, ch.UpdatedAt, verbReverse, "", reason)}
		return nil
	})
}

func auditLine(ctx context.Context, at time.Time, verb, step, note string) state.AuditEntry {
	return state.AuditEntry{At: at, Actor: state.Cut(state.Actor(ctx)), Verb: verb, Step: step, Note: state.Cut(note)}
}

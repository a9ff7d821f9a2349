package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Operator looks at runs and leads blocked ones out, without their definitions. Its verbs run nothing themselves (recovery
// or the next call does); those for blocked runs are conditional on the record's revision, and leave an audit line with the
// actor of [ActorContext]. All methods may be called concurrently. Keys must name the operation.
type Operator struct {
	store  state.Store
	clk    clock.Clock
	insist func(context.Context, func() error) error
}

// NewOperator returns an operator of the runs in store. Without a store, every method returns an error of class [ErrStore]
// that says so.
func NewOperator(store state.Store) *Operator {
	if absent.Is(store) {
		store = noStore{}
	}
	e := &engine{store: store, clk: clock.System()}
	return e.operator()
}

// noStore is what an operator has that was given no store.
type noStore struct{ state.Store }

var errNoStore = fmt.Errorf("%w: the store given to NewOperator is nil", state.ErrInvalidInput)

func (noStore) Get(context.Context, string) (*state.Record, error) { return nil, errNoStore }
func (noStore) Commit(context.Context, *state.Change) error        { return errNoStore }
func (noStore) RequestCancel(context.Context, string, state.CancelRequest) error {
	return errNoStore
}
func (noStore) List(context.Context, state.Query) (state.Page, error) {
	return state.Page{}, errNoStore
}

func (e *engine) operator() *Operator { return &Operator{e.store, e.clk, e.insist} }

// Runs lists the runs that match, page by page. The first error ends it.
func (o *Operator) Runs(ctx context.Context, q state.Query) iter.Seq2[*state.Record, error] {
	return func(yield func(*state.Record, error) bool) {
		for {
			page, err := o.store.List(ctx, q)
			if err != nil {
				yield(nil, fmt.Errorf("saga: list runs: %w: %w", ErrStore, err))
				return
			}
			for _, rec := range page.Records {
				if !yield(rec, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Cursor = page.Next
		}
	}
}

// Get returns the run's record. [ErrNotFound] when there is none.
func (o *Operator) Get(ctx context.Context, key Key) (*state.Record, error) {
	runKey, err := encodeWhole(key)
	if err != nil {
		return nil, err
	}
	rec, err := o.store.Get(ctx, runKey)
	if err != nil {
		return nil, o.storeError(key, err)
	}
	return rec, nil
}

// Cancel asks for the run to be undone; whoever holds it, or takes it up, obeys. See [Orchestrator.Cancel].
func (o *Operator) Cancel(ctx context.Context, key Key, reason string) error {
	runKey, err := encodeWhole(key)
	if err != nil {
		return err
	}
	req := state.CancelRequest{Reason: state.Cut(reason), Actor: state.Cut(state.Actor(ctx)), At: state.Milli(o.clk.Now())}
	if err := o.requestCancel(ctx, runKey, req); err != nil {
		return o.storeError(key, err)
	}
	return nil
}

// requestCancel stores the request. When the answer was lost and the request is not possible any more, it may be because
// it was obeyed meanwhile.
func (o *Operator) requestCancel(ctx context.Context, runKey string, req state.CancelRequest) error {
	sent := 0
	err := o.insist(ctx, func() error { sent++; return o.store.RequestCancel(ctx, runKey, req) })
	if sent == 1 || !errors.Is(err, state.ErrNotAllowed) {
		return err
	}
	rec, gone := o.store.Get(ctx, runKey)
	if gone == nil && rec.Cancel != nil && rec.Cancel.At.Equal(req.At) && rec.Cancel.Reason == req.Reason && rec.Cancel.Actor == req.Actor {
		return nil
	}
	return err
}

// Retry lets a blocked run try again where it is blocked: the step, whose attempts and deadline start anew and whose
// at-most-once mark is cleared, or the compensation. The run becomes INTERRUPTED or COMPENSATING.
func (o *Operator) Retry(ctx context.Context, key Key, note string) error {
	return o.act(ctx, key, verbRetry, "", note, func(rec *state.Record, ch *state.Change) error {
		if rec.EndsAs != "" {
			ch.Status = state.StatusCompensating
			if i := rec.StepIndex(rec.CurrentStep); i >= 0 {
				s := rec.Steps[i]
				s.UndoAttempts = 0
				ch.Steps = []state.StepChange{{Index: i, StepRecord: s}}
			}
			return nil
		}
		ch.Status, ch.Failure, ch.CurrentStep = state.StatusInterrupted, nil, ""
		if i := rec.Next(); i < len(rec.Steps) {
			s := rec.Steps[i]
			s.Unknown = s.Unknown || s.Status == state.StepStarted
			s.Status, s.Attempts, s.StartedAt = state.StepPending, 0, time.Time{}
			ch.Steps = []state.StepChange{{Index: i, StepRecord: s}}
			if rec.Failure == nil || rec.Failure.Code != CodeWhen { // otherwise the take-up has to decide about it
				ch.CurrentStep = s.Name
			}
		}
		return nil
	})
}

// MarkDone says that the step at which a run is blocked was done, with this result (encoded as JSON; nil for a step
// without one). The next take-up goes on behind it. The type of the result can't be checked here: [Orchestrator.MarkDone]
// does. [ErrNotAllowed] for another step than the current one, and for a run that goes backwards.
func (o *Operator) MarkDone(ctx context.Context, key Key, step string, result any, note string) error {
	raw, err := state.Encode(result)
	if err != nil {
		return &Error{Kind: ErrInvalidInput, Key: key, Step: step, Err: err}
	}
	return o.act(ctx, key, verbMarkDone, step, note, func(rec *state.Record, ch *state.Change) error {
		i := rec.StepIndex(step)
		switch {
		case rec.EndsAs != "":
			return errors.New("the run goes backwards; MarkCompensated is what can be said of a step")
		case i < 0 || rec.CurrentStep != step:
			return fmt.Errorf("the current step is %q", rec.CurrentStep)
		}
		s := rec.Steps[i]
		s.Status, s.Unknown, s.Error, s.Output, s.EndedAt = state.StepDone, false, nil, raw, ch.UpdatedAt
		if rec.Cancel != nil && step == rec.Pivot {
			ch.DropCancel, ch.Audit = true, []state.AuditEntry{cancelDropped(ch.UpdatedAt, step)}
		}
		ch.Steps = []state.StepChange{{Index: i, StepRecord: s}}
		ch.Status, ch.Failure, ch.CurrentStep = state.StatusInterrupted, nil, ""
		if i+1 < len(rec.Steps) {
			ch.CurrentStep = rec.Steps[i+1].Name
		}
		return nil
	})
}

// MarkCompensated says that a step of a run that is blocked on its way back was undone by hand. The run becomes
// COMPENSATING. [ErrNotAllowed] when the step has nothing to be undone, or the run does not go backwards.
func (o *Operator) MarkCompensated(ctx context.Context, key Key, step, note string) error {
	return o.act(ctx, key, verbMarkCompensated, step, note, func(rec *state.Record, ch *state.Change) error {
		i := rec.StepIndex(step)
		switch {
		case rec.EndsAs == "":
			return errors.New("the run does not go backwards; ForceCompensate turns it round")
		case i < 0:
			return errors.New("it has no such step")
		case !rec.Steps[i].MayHaveHappened():
			return fmt.Errorf("the step is %s, there is nothing to undo", rec.Steps[i].Status)
		}
		s := rec.Steps[i]
		s.Status, s.UndoError, s.EndedAt = state.StepCompensated, nil, ch.UpdatedAt
		ch.Steps = []state.StepChange{{Index: i, StepRecord: s}}
		ch.Status, ch.CurrentStep = state.StatusCompensating, lastToUndo(rec, i)
		return nil
	})
}

// lastToUndo is the name of the last step that may have to be undone, but for the one at except: as far as can be told
// without the definition, which knows what can't be undone. The take-up does.
func lastToUndo(rec *state.Record, except int) string {
	for i := len(rec.Steps) - 1; i >= 0; i-- {
		if i != except && rec.Steps[i].MayHaveHappened() {
			return rec.Steps[i].Name
		}
	}
	return ""
}

// ForceCompensate sends a blocked run backwards, over its pivot if need be. [ErrNotAllowed] when it goes backwards
// already: Retry or MarkCompensated lead on then.
func (o *Operator) ForceCompensate(ctx context.Context, key Key, note string) error {
	return o.act(ctx, key, verbForce, "", note, func(rec *state.Record, ch *state.Change) error {
		if rec.EndsAs != "" {
			return errors.New("the run goes backwards already; Retry or MarkCompensated lead on")
		}
		ch.Status, ch.EndsAs, ch.CurrentStep = state.StatusCompensating, state.StatusFailed, lastToUndo(rec, -1)
		if ch.Failure == nil {
			ch.Failure = &state.Failure{Step: rec.CurrentStep, Message: state.Cut("forced back: " + note), At: ch.UpdatedAt}
		}
		return nil
	})
}

// act makes one audited change to a blocked run.
func (o *Operator) act(ctx context.Context, key Key, verb, step, note string, edit func(*state.Record, *state.Change) error) error {
	rec, err := o.Get(ctx, key)
	if err != nil {
		return err
	}
	refuse := func(why error) error {
		return &Error{Kind: ErrNotAllowed, Key: key, Step: step, Err: fmt.Errorf("%s: %w", verb, why)}
	}
	if rec.Status != state.StatusBlocked {
		return refuse(fmt.Errorf("the run is %s, not BLOCKED", rec.Status))
	}
	now := state.Milli(o.clk.Now())
	ch := &state.Change{
		Key: rec.Key, IfOwner: rec.Owner, IfRevision: rec.Revision, WriteID: newID(),
		Runs: rec.Runs, Status: rec.Status, EndsAs: rec.EndsAs, CurrentStep: rec.CurrentStep, UpdatedAt: now, Failure: rec.Failure,
	}
	if err := edit(rec, ch); err != nil {
		return refuse(err)
	}
	on := step
	if on == "" {
		on = rec.CurrentStep
	}
	line := auditLine(ctx, now, verb, on, note)
	ch.Audit = append([]state.AuditEntry{line}, ch.Audit...)
	sent := 0
	err = o.insist(ctx, func() error { sent++; return own(o.store.Commit(ctx, ch), ch) })
	var lost *state.ConflictError
	switch {
	case errors.As(err, &lost):
		if sent > 1 && lost.Current != nil && slices.ContainsFunc(lost.Current.Audit, sameLine(line)) {
			return nil // made, and the answer was lost, and someone has taken the run up since
		}
		return refuse(fmt.Errorf("the run was changed meanwhile, look again: %w", err))
	case err != nil:
		return o.storeError(key, err)
	}
	return nil
}

// encodeWhole encodes the key of someone who has no definition that would fill in the operation.
func encodeWhole(key Key) (string, error) {
	if key.Operation == "" {
		return "", &Error{Kind: ErrInvalidKey, Key: key, Err: errors.New("an operator's key must name the operation")}
	}
	runKey, err := key.Encode()
	if err != nil {
		return "", &Error{Kind: ErrInvalidKey, Key: key, Err: err}
	}
	return runKey, nil
}

func (o *Operator) storeError(key Key, err error) error {
	return (&engine{}).storeError(key, err)
}

// checkResult encodes a result that a person gives for a step, if it is of the type that the step has in the version
// that the run is of.
func (e *engine) checkResult(ctx context.Context, key Key, step string, result any) (json.RawMessage, error) {
	rec, err := e.get(ctx, key, key.String())
	if err != nil {
		return nil, err
	}
	p, known := e.plan.of(rec.Version)
	if !known {
		return nil, &Error{Kind: ErrDefinitionChanged, Key: key, Step: step, Err: fmt.Errorf("it is of version %d", rec.Version)}
	}
	for i := range p.steps {
		if p.steps[i].Name != step {
			continue
		}
		raw, err := p.steps[i].Check(result)
		if err != nil {
			return nil, &Error{Kind: ErrInvalidInput, Key: key, Step: step, Err: err}
		}
		return raw, nil
	}
	return nil, &Error{Kind: ErrNotAllowed, Key: key, Step: step, Err: fmt.Errorf("%s has no such step", e.plan.name)}
}

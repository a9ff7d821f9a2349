package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// take makes the run this call's own: a holder, or the record of a run that rests for good (rested), or why not.
func (e *engine) take(ctx context.Context, key Key, runKey string, in *payload, lease time.Duration) (h *holder, rested *state.Record, err error) {
	// Each turn but the last was lost to someone who has changed the record meanwhile.
	var rec *state.Record
	for range 64 {
		switch {
		case rec != nil:
		case in != nil:
			h, rec, err = e.create(ctx, key, runKey, in, lease)
		default:
			rec, err = e.get(ctx, key, runKey)
		}
		if rec != nil && errors.Is(err, state.ErrCorrupt) {
			return nil, nil, e.payloadLost(ctx, key, rec, err)
		}
		if h == nil && err == nil {
			h, rec, rested, err = e.takeUp(ctx, key, rec, in, lease)
		}
		if h != nil || rested != nil || err != nil {
			return h, rested, err
		}
	}
	return nil, nil, &Error{Kind: ErrInProgress, Key: key, RetryAfter: e.lease, Err: errors.New("the record changes faster than it can be taken up")}
}

func resting(rec *state.Record) bool { return rec.Status.Ended() || rec.Status == state.StatusBlocked }

func (e *engine) get(ctx context.Context, key Key, runKey string) (*state.Record, error) {
	rec, err := e.store.Get(ctx, runKey)
	err = sound(err)
	if err == nil && rec.Expired(e.now()) {
		err = fmt.Errorf("run %s: %w: its record has expired", runKey, state.ErrNotFound)
	}
	if err != nil {
		return rec, e.takeError(ctx, key, err)
	}
	return rec, nil
}

// create makes the record; rec is the one that has the key already.
func (e *engine) create(ctx context.Context, key Key, runKey string, in *payload, lease time.Duration) (*holder, *state.Record, error) {
	hash, err := in.hashBy(e.plan)
	if err != nil {
		return nil, nil, &Error{Kind: ErrInvalidInput, Key: key, Err: err}
	}
	h := &holder{e: e, p: e.plan, key: key, runKey: runKey, owner: newID(), lease: lease, worker: worker{crew: &e.crew}}
	h.rec = h.newRecord(in, hash)
	skipped, trouble, err := h.skips(callersContext(ctx), 0)
	if err != nil { // which says nothing about a run that is there already
		if rec, got := e.get(ctx, key, runKey); got == nil {
			return nil, rec, nil
		}
		return nil, nil, h.abandoned(h.p.steps[len(skipped)].Name, err)
	}
	for _, s := range skipped {
		h.rec.Steps[s.Index] = s.StepRecord
	}
	h.trouble = trouble
	if trouble == nil {
		h.rec.CurrentStep = h.current()
	}
	var existing *state.Record
	err = e.insist(ctx, func() (err error) {
		existing, err = e.store.Create(ctx, h.rec)
		return err
	})
	if err == nil && (existing == nil || existing.WriteID == h.rec.WriteID) { // the second: made, and the answer was lost
		h.leaseFrom(h.made)
		h.created = true
		return h, nil, nil
	}
	h.worker.rest()
	if err != nil {
		return nil, existing, e.takeError(ctx, key, err)
	}
	return nil, existing, nil
}

func (h *holder) newRecord(in *payload, hash string) *state.Record {
	h.made = h.e.clk.Mono()
	now := h.e.now()
	rec := &state.Record{
		Key: h.runKey, Operation: h.p.name, Version: h.p.version, Plan: h.p.names(), Pivot: h.p.pivot(), Retention: h.p.retention,
		Status: state.StatusInProgress, Steps: make([]state.StepRecord, len(h.p.steps)), PayloadHash: hash, Input: in.raw,
		Owner: h.owner, WriteID: newID(), Runs: 1, LeaseUntil: now.Add(h.lease), Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
	for i := range rec.Steps {
		rec.Steps[i] = state.StepRecord{Name: h.p.steps[i].Name, Status: state.StepPending}
	}
	return rec
}

// checkHash comes before everything else that is said of a run: the same key with another payload is a bug, whatever
// the run's status. A run of a version that nobody knows any more is hashed by the present declaration.
func (e *engine) checkHash(key Key, rec *state.Record, in *payload) error {
	if in == nil {
		return nil
	}
	p, known := e.plan.of(rec.Version)
	if !known {
		p = e.plan
	}
	hash, err := in.hashBy(p)
	if err != nil {
		return &Error{Kind: ErrInvalidInput, Key: key, Err: err}
	}
	if hash != rec.PayloadHash {
		return &Error{Kind: ErrPayloadMismatch, Key: key, Err: errors.New("the run was started with other content; use a new key for a new request")}
	}
	return nil
}

// takeUp takes an existing run up. rested is the record of a run that needs no holder; newer is the record that won the
// race, nil when it is gone.
func (e *engine) takeUp(ctx context.Context, key Key, rec *state.Record, in *payload, lease time.Duration) (h *holder, newer, rested *state.Record, err error) {
	if err := e.checkHash(key, rec, in); err != nil {
		return nil, nil, nil, err
	}
	if resting(rec) {
		return nil, nil, rec, nil
	}
	p, err := e.mayTake(key, rec)
	if err != nil {
		return nil, nil, nil, err
	}
	h, newer, err = e.claim(ctx, key, p, rec, lease, func(h *holder, ch *state.Change) error { return h.takeUpChange(callersContext(ctx), ch) })
	return h, newer, nil, err
}

// mayTake tells by which declaration the run may be taken up now.
func (e *engine) mayTake(key Key, rec *state.Record) (*plan, error) {
	now := e.now()
	if rec.LeaseLive(now) {
		return nil, &Error{Kind: ErrInProgress, Key: key, Step: rec.CurrentStep, RetryAfter: rec.LeaseUntil.Sub(now)}
	}
	if e.running(rec.Key) {
		return nil, &Error{Kind: ErrInProgress, Key: key, Step: rec.CurrentStep, RetryAfter: e.lease,
			Err: errors.New("a function that ignored the end of its context is still running in this process")}
	}
	p, known := e.plan.of(rec.Version)
	if !known {
		return nil, &Error{Kind: ErrDefinitionChanged, Key: key, Err: fmt.Errorf("it is of version %d, which is neither %d nor one given with Previous", rec.Version, e.plan.version)}
	}
	if err := p.fits(rec); err != nil {
		return nil, &Error{Kind: ErrDefinitionChanged, Key: key, Err: err}
	}
	obeys := rec.Cancel != nil && rec.Status != state.StatusCompensating && compensate.MayGoBack(rec.Steps, rec.Pivot)
	if now.Before(rec.NotBefore) && !obeys {
		return nil, &Error{Kind: ErrInterrupted, Key: key, Step: rec.CurrentStep, RetryAfter: rec.NotBefore.Sub(now),
			Err: errors.New("a step asked not to be tried again before then")}
	}
	return p, nil
}

// claim makes the take-up write: edit turns the record as it is into the change. Without a holder and an error, the
// record that won the race is returned.
func (e *engine) claim(ctx context.Context, key Key, p *plan, rec *state.Record, lease time.Duration, edit func(*holder, *state.Change) error) (*holder, *state.Record, error) {
	h := &holder{e: e, p: p, key: key, runKey: rec.Key, owner: newID(), lease: lease, rec: rec, worker: worker{crew: &e.crew}}
	ch := h.change()
	ch.IfOwner, ch.Owner, ch.Runs = rec.Owner, h.owner, rec.Runs+1
	if err := edit(h, ch); err != nil {
		return nil, nil, err
	}
	err := e.insist(ctx, func() error { return own(e.store.Commit(ctx, ch), ch) })
	if err == nil {
		err = ch.Apply(h.rec)
	}
	if err == nil {
		h.leaseFrom(h.made)
		return h, nil, nil
	}
	h.worker.rest()
	var lost *state.ConflictError
	if errors.As(err, &lost) {
		return nil, lost.Current, nil
	}
	return nil, nil, e.takeError(ctx, key, err)
}

// takeError is the error of a store call on the way to taking a run up. When the caller's time has ended, that is what
// the caller hears first.
func (e *engine) takeError(ctx context.Context, key Key, err error) *Error {
	if cause := causeOf(ctx); cause != nil && !definite(err) {
		return &Error{Kind: ErrInterrupted, Key: key, Err: fmt.Errorf("%w: %w: %w", cause, ErrStore, err)}
	}
	return e.storeError(key, err)
}

// takeUpChange is what a take-up writes: the unknown mark of a take-over, obedience to a cancel, an extended plan.
func (h *holder) takeUpChange(run *runContext, ch *state.Change) error {
	rec := h.rec
	ch.NotBefore = time.Time{}
	if rec.Status == state.StatusCompensating {
		h.markUndo(ch)
		return nil
	}
	view := rec.Steps
	if i := rec.Next(); i < len(rec.Steps) {
		if s := h.mark(i); s != nil {
			ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: *s})
			view = append(append([]state.StepRecord{}, view...), nil...)
			view[i] = *s
		}
	}
	if rec.Cancel != nil && compensate.MayGoBack(view, rec.Pivot) {
		h.obey(ch, rec.Cancel)
		return nil
	}
	ch.Status = state.StatusInProgress
	ch.IfNoCancel = rec.Cancel == nil
	if err := h.extend(run, ch); err != nil {
		return err
	}
	ch.CurrentStep = ""
	if h.trouble != nil {
		return nil // whoever takes over before that is recorded must not take the step for one that is to be run
	}
	for _, s := range h.after(ch) {
		if !s.Status.Finished() {
			ch.CurrentStep = s.Name
			break
		}
	}
	return nil
}

// mark is the entry of the step that the last holder may have been at when it died: unknown, and one attempt more. An
// at-most-once step without its mark never started, and neither did one whose When was still to be decided.
func (h *holder) mark(i int) *state.StepRecord {
	s := h.rec.Steps[i]
	d := &h.p.steps[i]
	switch {
	case h.rec.Status == state.StatusInProgress && !d.AtMostOnce && h.rec.CurrentStep != "":
		s.StartedAt = h.firstStart(i)
		s.Attempts++
		s.Unknown = true
		return &s
	case d.KeyValid > 0 && s.Attempts == 0 && s.StartedAt.IsZero():
		s.StartedAt = h.e.now() // no call was made before this
		return &s
	}
	return nil
}

// markUndo counts the call of the compensation that the last holder may have been at when it died. After a person's word the
// run may be at another one than it says.
func (h *holder) markUndo(ch *state.Change) {
	p := compensate.NewPlan(h.rec.Steps, h.p.means)
	ch.CurrentStep = ""
	if len(p.Undo) == 0 {
		return
	}
	ch.CurrentStep = h.rec.Steps[p.Undo[0]].Name
	if h.rec.Owner == "" { // it was laid down
		return
	}
	s := h.rec.Steps[p.Undo[0]]
	s.UndoAttempts++
	ch.Steps = append(ch.Steps, state.StepChange{Index: p.Undo[0], StepRecord: s})
}

// firstStart is no later than the first call of the step at i.
func (h *holder) firstStart(i int) time.Time {
	if t := h.rec.Steps[i].StartedAt; !t.IsZero() {
		return t
	}
	for j := i - 1; j >= 0; j-- {
		if t := h.rec.Steps[j].EndedAt; !t.IsZero() {
			return t
		}
	}
	return h.rec.CreatedAt
}

// extend appends declared steps that the stored plan lacks, and decides about the next step's When where the write that
// recorded the step before it could not: behind a step that is undecided, or at the seam of the plans.
func (h *holder) extend(run *runContext, ch *state.Change) error {
	stored := len(h.rec.Steps)
	if len(h.p.steps) > stored {
		ch.Plan, ch.Pivot = h.p.names(), h.p.pivot()
		for i := stored; i < len(h.p.steps); i++ {
			s := state.StepRecord{Name: h.p.steps[i].Name, Status: state.StepPending}
			ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: s})
			h.rec.Steps = append(h.rec.Steps, s)
		}
		defer func() { h.rec.Steps = h.rec.Steps[:stored] }()
	}
	next := h.rec.Next()
	if next == stored || h.undecided(next) {
		skipped, trouble, err := h.skips(run, next)
		if err != nil {
			return h.abandoned(h.p.steps[next+len(skipped)].Name, err)
		}
		ch.Steps = append(ch.Steps, skipped...)
		h.trouble = trouble
	}
	return nil
}

// undecided tells whether it was left open whether this step is to be run: by a holder that died when its When could not be
// evaluated, by a person who has it tried again after that, or by the write that made the step before it DONE, when that was a person's, or one that could not record the
// result. Once a take-up has decided, and the step may have been called, it stays with that.
func (h *holder) undecided(next int) bool {
	if h.rec.Status == state.StatusInProgress {
		return h.rec.CurrentStep == ""
	}
	s := &h.rec.Steps[next]
	if h.rec.Status != state.StatusInterrupted || s.Unknown || s.Attempts > 0 || s.Status != state.StepPending {
		return false
	}
	if h.rec.CurrentStep == "" || next == 0 {
		return h.rec.CurrentStep == ""
	}
	before := &h.rec.Steps[next-1]
	if before.Status == state.StepDone && before.Output == nil {
		return true
	}
	return slices.ContainsFunc(h.rec.Audit, func(a state.AuditEntry) bool { return a.Verb == verbMarkDone && a.Step == before.Name })
}

// own turns a refusal into success when what is stored was made by this very write, sent before.
func own(err error, ch *state.Change) error {
	if err == nil {
		return nil
	}
	var c *state.ConflictError
	if errors.As(err, &c) && c.Current != nil && c.Current.WriteID == ch.WriteID {
		return nil
	}
	return err
}

// insist sends a write until its answer is known: an answer in doubt is resolved by sending the same write again. It
// gives up after a few tries or with the context.
func (e *engine) insist(ctx context.Context, send func() error) error {
	var err error
	for pause := 10 * time.Millisecond; pause <= 160*time.Millisecond; pause *= 2 {
		if err = sound(send()); err == nil || definite(err) {
			return err
		}
		if e.clk.Sleep(ctx, pause) != nil {
			return err
		}
	}
	return err
}

// definite tells whether the store has said for sure that nothing was written.
func definite(err error) bool {
	for _, known := range []error{state.ErrConflict, state.ErrTooLarge, state.ErrTransition, state.ErrNotFound, state.ErrNotAllowed,
		state.ErrInvalidInput, state.ErrUnsupported, state.ErrNewerRecord, state.ErrCorrupt} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// skips decides about the Whens from step i on, up to the first step that is to be run. trouble is a When that panicked;
// err is errAbandoned, of the When behind those that are skipped.
func (h *holder) skips(run *runContext, i int) (skipped []state.StepChange, trouble *stepTrouble, err error) {
	for ; i < len(h.p.steps); i++ {
		s := &h.p.steps[i]
		if s.When == nil {
			break
		}
		c := h.newCall(i, drive.When, 0)
		yes := make(chan bool, 1)
		r, err := h.quick(run, c, func(_ context.Context, c *drive.Call) drive.Result { yes <- s.When(c); return drive.Result{} })
		switch {
		case err != nil:
			return skipped, nil, err
		case r.Err != nil:
			return skipped, &stepTrouble{i, fmt.Errorf("its When: %w", r.Err)}, nil
		}
		if <-yes {
			break
		}
		rec := state.StepRecord{Name: s.Name, Status: state.StepSkipped, EndedAt: h.e.now()}
		skipped = append(skipped, state.StepChange{Index: i, StepRecord: rec})
	}
	return skipped, nil, nil
}

// stepTrouble is a step whose When can't be evaluated: its failure is permanent, since When is pure.
type stepTrouble struct {
	step int
	err  error
}

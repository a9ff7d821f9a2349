package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Commit makes the change with one conditional update; see [state.Store]. What must go into siblings is written before.
func (s *Store) Commit(ctx context.Context, ch *state.Change) error {
	if impossible(ch) {
		return s.refuse(ctx, ch)
	}
	w := &commitWrite{s: s, ch: ch, p: placer{runKey: ch.Key, writeID: ch.WriteID}}
	w.hint, w.known = s.memo.of(ch.Key, ch.IfOwner)
	if err := w.prepare(ctx); err != nil {
		return err
	}
	for range 4 {
		e, err := w.expression()
		if err != nil {
			return err
		}
		after, refusal, old, err := s.update(ctx, "commit", ch.Key, e, w.returns())
		if err != nil {
			return err
		}
		if !refusal {
			w.learn(after)
			return nil
		}
		if err := w.refused(ctx, old); err != nil {
			return err
		}
	}
	return fmt.Errorf("dynamostore: commit run %s: the messages change all the time", ch.Key)
}

// impossible tells whether no record at all could take the change, so that no condition can be put for it.
func impossible(ch *state.Change) bool {
	if len(fromStatuses[ch.Status].values) == 0 || !ch.ExpiresAt.IsZero() && (!ch.Status.Ended() || len(ch.Messages) > 0) {
		return true
	}
	for i := range ch.Steps {
		if ch.Steps[i].Index < 0 {
			return true
		}
	}
	return false
}

// refuse answers an impossible change as Apply would.
func (s *Store) refuse(ctx context.Context, ch *state.Change) error {
	it, err := s.readHeader(ctx, "commit", ch.Key)
	if err != nil {
		return err
	}
	h, err := s.load(ctx, "commit", ch.Key, it)
	switch {
	case err != nil:
		return err
	case h == nil:
		return &state.ConflictError{Key: ch.Key}
	}
	if err := ch.Check(h.rec); err != nil {
		return err
	}
	return fmt.Errorf("run %s: state: %w: %s to %s", ch.Key, state.ErrTransition, h.rec.Status, ch.Status)
}

// from is the condition on the status that a write to another status has: the statuses, under the names of placeholders.
type from struct {
	names  []string
	values []types.AttributeValue
	in     string
}

var fromStatuses = func() map[state.Status]from {
	all := map[state.Status]from{}
	for _, to := range state.Statuses() {
		f := from{in: "#s IN ("}
		for i, s := range state.Statuses() {
			if !s.CanBecome(to) {
				continue
			}
			name := ":s" + string(rune('a'+i))
			if len(f.names) > 0 {
				f.in += ","
			}
			f.in += name
			f.names, f.values = append(f.names, name), append(f.values, str(string(s)))
		}
		f.in += ")"
		all[to] = f
	}
	return all
}()

// commitWrite is a Change on its way.
type commitWrite struct {
	s  *Store
	ch *state.Change
	p  placer

	hint  hint
	known bool // the hint may be relied on

	outputs  []where // of the steps' outputs
	response where
	bodies   []where // of the messages' bodies

	// keepOpen leaves the index entry of a run that ends, because it has messages.
	keepOpen bool
	// leftovers is how many keys the outbox has though it has no message.
	leftovers int
}

// prepare decides where payloads go and writes the siblings.
func (w *commitWrite) prepare(ctx context.Context) error {
	ch, p := w.ch, &w.p
	w.outputs = make([]where, len(ch.Steps))
	for i := range ch.Steps {
		if out := ch.Steps[i].Output; !superseded(ch.Steps, i) {
			w.outputs[i] = p.place(stepPart(ch.Steps[i].Index), out, fitsStep(out))
		}
	}
	w.response = p.place(responsePart, ch.Response, inlines(ch.Response))
	w.bodies = make([]where, len(ch.Messages))
	for i := range ch.Messages {
		body := ch.Messages[i].Bytes()
		w.bodies[i] = p.place(messagePart(w.sequence(i)), body, inlines(body))
	}
	if p.err != nil || len(p.siblings) == 0 {
		return p.err
	}
	retention, err := w.retention(ctx)
	if err != nil {
		return err
	}
	return w.s.putSiblings(ctx, "commit", ch.Key, p.siblings, retention)
}

// retention is how long the record is kept. Where this store has not seen the run in the hands of this owner, it reads
// the header, and refuses what the fence would refuse.
func (w *commitWrite) retention(ctx context.Context) (time.Duration, error) {
	if w.known {
		return w.hint.retention, nil
	}
	it, err := w.s.readHeader(ctx, "commit", w.ch.Key)
	if err != nil {
		return 0, err
	}
	h, err := w.s.look(it)
	if err != nil {
		return 0, err
	}
	if h == nil || h.rec.Owner != w.ch.IfOwner || h.rec.Revision != w.ch.IfRevision {
		return 0, w.refused(ctx, it)
	}
	w.hint, w.known = hintOf(h.rec), true
	return w.hint.retention, nil
}

func (w *commitWrite) sequence(i int) sequence { return sequence{w.ch.IfRevision + 1, i} }

// superseded tells whether a later entry of the change replaces the one at i.
func superseded(steps []state.StepChange, i int) bool {
	for j := i + 1; j < len(steps); j++ {
		if steps[j].Index == steps[i].Index {
			return true
		}
	}
	return false
}

// returns asks for the new item, which costs nothing, where the store has not seen the run before.
func (w *commitWrite) returns() types.ReturnValue {
	if w.known {
		return types.ReturnValueNone
	}
	return types.ReturnValueAllNew
}

func (w *commitWrite) learn(after item) {
	if w.known {
		w.s.memo.put(w.ch.Key, w.hint.after(w.ch))
	} else if h, err := w.s.decodeHeader(after); err == nil {
		w.s.memo.put(w.ch.Key, hintOf(h.rec))
	}
}

// refused turns a failed condition into its error. nil: the fence holds, and what failed was a condition about messages,
// which the next try has otherwise.
func (w *commitWrite) refused(ctx context.Context, old item) error {
	h, err := w.s.load(ctx, "commit", w.ch.Key, old)
	switch {
	case err != nil:
		return err
	case h == nil:
		return &state.ConflictError{Key: w.ch.Key}
	}
	if err := w.ch.Check(h.rec); err != nil {
		return err
	}
	w.keepOpen = len(h.messages) > 0 || w.ch.ExpiresAt.IsZero() && h.rec.Retention > 0
	w.leftovers = len((&reader{it: old}).mapOf(w.s.names.Outbox)) - len(h.messages)
	return nil
}

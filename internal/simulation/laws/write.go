package laws

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// write is one accepted commit: the record before it, and after it.
type write struct {
	def           *drive.Definition
	before, after *state.Record
	ch            *state.Change
	known         map[string]bool // the messages of the writes before
}

// laws are what holds for every write. Each returns what is wrong, or nothing.
var laws = map[string]func(*write) string{
	"a fence":                 fenced,
	"legal transitions":       transition,
	"steps in order":          inOrder,
	"one direction":           oneDirection,
	"the pivot":               pivot,
	"a cancel is obeyed":      cancelObeyed,
	"completed is complete":   completed,
	"undone is undone":        undone,
	"undone in reverse order": reverseOrder,
	"resting":                 resting,
	"messages":                messages,
	"a take-over marks":       takeOver,
	"people are named":        audited,
	"a live lease":            leaseRespected,
}

func fenced(w *write) string {
	if w.before.Owner != w.ch.IfOwner || w.before.Revision != w.ch.IfRevision || w.after.Revision != w.before.Revision+1 {
		return fmt.Sprintf("written over owner %q at revision %d with the fence %q at %d", w.before.Owner, w.before.Revision, w.ch.IfOwner, w.ch.IfRevision)
	}
	return ""
}

// next is what one write may make of a step.
var next = map[state.StepStatus][]state.StepStatus{
	state.StepPending:      {state.StepPending, state.StepStarted, state.StepDone, state.StepSkipped, state.StepCompensating, state.StepCompensated},
	state.StepStarted:      {state.StepStarted, state.StepPending, state.StepDone, state.StepCompensating, state.StepCompensated},
	state.StepDone:         {state.StepDone, state.StepCompensating, state.StepCompensated},
	state.StepSkipped:      {state.StepSkipped},
	state.StepCompensating: {state.StepCompensating, state.StepDone, state.StepCompensated}, // DONE: the probe found it
	state.StepCompensated:  {state.StepCompensated},
}

func transition(w *write) string {
	if !w.before.Status.CanBecome(w.after.Status) {
		return fmt.Sprintf("%s became %s", w.before.Status, w.after.Status)
	}
	for i, was := range w.before.Steps {
		is := w.after.Steps[i]
		if !slices.Contains(next[was.Status], is.Status) {
			return fmt.Sprintf("step %s was %s and became %s", is.Name, was.Status, is.Status)
		}
		if was.Status == state.StepDone && is.Status == state.StepDone && string(was.Output) != string(is.Output) {
			return fmt.Sprintf("the result of step %s was changed after it was DONE", is.Name)
		}
	}
	return ""
}

func inOrder(w *write) string {
	for i, is := range w.after.Steps {
		was := w.before.Steps[i].Status
		if is.Status == was || is.Status != state.StepDone && is.Status != state.StepStarted && is.Status != state.StepSkipped {
			continue
		}
		if is.Status == state.StepDone && w.before.Status == state.StatusCompensating {
			continue // a probe's answer on the way back
		}
		for _, earlier := range w.after.Steps[:i] {
			if !earlier.Status.Finished() {
				return fmt.Sprintf("step %s became %s while %s before it is %s", is.Name, is.Status, earlier.Name, earlier.Status)
			}
		}
	}
	return ""
}

func oneDirection(w *write) string {
	if w.before.Status != state.StatusCompensating {
		for i, is := range w.after.Steps {
			if is.Status == state.StepCompensated && w.before.Steps[i].Status != is.Status && !w.by("mark_compensated") {
				return fmt.Sprintf("step %s was undone by a write before COMPENSATING was recorded", is.Name)
			}
		}
		return ""
	}
	switch {
	case w.after.Status.Ended() && w.after.Status != w.before.EndsAs:
		return fmt.Sprintf("it goes back to %s and ended as %s", w.before.EndsAs, w.after.Status)
	case w.after.EndsAs != w.before.EndsAs:
		return fmt.Sprintf("ends_as was %q and became %q on the way", w.before.EndsAs, w.after.EndsAs)
	}
	for i, is := range w.after.Steps {
		was := w.before.Steps[i]
		if is.Status != was.Status && (is.Status == state.StepStarted || is.Status == state.StepSkipped || is.Status == state.StepDone && !was.MayHaveHappened()) {
			return fmt.Sprintf("step %s became %s while the run goes backwards", is.Name, is.Status)
		}
	}
	return ""
}

// turns tells whether this write turns the run round.
func (w *write) turns() bool {
	return w.after.Status == state.StatusCompensating && w.before.EndsAs == ""
}

func mayGoBack(rec *state.Record) bool {
	s, ok := rec.Step(rec.Pivot)
	return !ok || !s.MayHaveHappened()
}

func pivot(w *write) string {
	if w.turns() && !mayGoBack(w.after) && !w.by("reverse") && !w.by("force_compensate") {
		return fmt.Sprintf("it went backwards over its pivot %s, which is done or may be", w.after.Pivot)
	}
	return ""
}

// by tells whether the write is a person's verb.
func (w *write) by(verb string) bool {
	return slices.ContainsFunc(w.ch.Audit, func(a state.AuditEntry) bool { return a.Verb == verb })
}

func cancelObeyed(w *write) string {
	if w.before.Cancel == nil || w.before.Status != state.StatusInProgress || w.before.Owner != w.ch.Owner && w.ch.Owner != "" {
		return ""
	}
	forward := w.after.Status == state.StatusInProgress || w.after.Status == state.StatusCompleted
	for i, is := range w.after.Steps {
		if forward && is.Status.Finished() && !w.before.Steps[i].Status.Finished() && mayGoBack(w.after) {
			return fmt.Sprintf("step %s was recorded and the run goes on, over a cancel request", is.Name)
		}
	}
	if w.after.Cancel == nil && mayGoBack(w.after) {
		return "a cancel request was dropped before the pivot"
	}
	return ""
}

func completed(w *write) string {
	if w.after.Status == state.StatusCompleted && w.after.Next() < len(w.after.Steps) {
		return fmt.Sprintf("COMPLETED with step %s %s", w.after.Steps[w.after.Next()].Name, w.after.Steps[w.after.Next()].Status)
	}
	return ""
}

func undone(w *write) string {
	if w.after.Status != state.StatusFailed && w.after.Status != state.StatusReversed {
		return ""
	}
	var stands []string
	for _, s := range w.after.Steps {
		d, _ := w.def.Find(s.Name)
		switch {
		case !s.MayHaveHappened() || d == nil || d.NothingToUndo:
		case d.Undo != nil:
			return fmt.Sprintf("%s, and step %s, which has a compensation, is %s (unknown: %t)", w.after.Status, s.Name, s.Status, s.Unknown)
		default:
			stands = append(stands, s.Name)
		}
	}
	var told []string
	if w.after.Failure != nil {
		told = w.after.Failure.NotUndone
	}
	if !slices.Equal(stands, told) {
		return fmt.Sprintf("not undone: %q, and the failure tells of %q", stands, told)
	}
	return ""
}

func reverseOrder(w *write) string {
	if w.by("mark_compensated") {
		return ""
	}
	count := 0
	for i, is := range w.after.Steps {
		if is.Status != state.StepCompensated || w.before.Steps[i].Status == state.StepCompensated {
			continue
		}
		if count++; count > 1 {
			return "two undos were recorded by one write"
		}
		if was := w.before.Steps[i]; !was.MayHaveHappened() {
			return fmt.Sprintf("step %s was undone, and had not happened (%s)", is.Name, was.Status)
		}
		for _, later := range w.after.Steps[i+1:] {
			if d, _ := w.def.Find(later.Name); later.MayHaveHappened() && d != nil && d.Undo != nil {
				return fmt.Sprintf("step %s was undone before %s behind it", is.Name, later.Name)
			}
		}
	}
	return ""
}

func resting(w *write) string {
	rests := w.after.Status.Ended() || w.after.Status == state.StatusBlocked || w.after.Status == state.StatusInterrupted
	switch {
	case rests && (w.after.Owner != "" || !w.after.LeaseUntil.IsZero()):
		return fmt.Sprintf("%s with an owner or a lease", w.after.Status)
	case !w.after.ExpiresAt.IsZero() && (!w.after.Status.Ended() || len(w.after.Outbox.Messages) > 0):
		return fmt.Sprintf("%s with %d messages expires", w.after.Status, len(w.after.Outbox.Messages))
	case w.after.Status.Ended() && w.after.ExpiresAt.IsZero() && w.after.Retention > 0 && len(w.known)+len(w.ch.Messages) == 0:
		// With messages, a relay may have been quicker than the holder knows, and closes the record itself.
		return fmt.Sprintf("%s without messages never expires", w.after.Status)
	}
	return ""
}

func messages(w *write) string {
	for _, m := range w.ch.Messages {
		if w.known[m.ID] {
			return fmt.Sprintf("message %s became due twice", m.ID)
		}
		step, undo := w.origin(m.ID)
		s, ok := w.after.Step(step)
		if !ok {
			return fmt.Sprintf("message %s belongs to no step", m.ID)
		}
		want := state.StepDone
		if undo {
			want = state.StepCompensated
		}
		if s.Status != want {
			return fmt.Sprintf("message %s became due with step %s %s", m.ID, s.Name, s.Status)
		}
	}
	return ""
}

// origin is the step that a message's ID names, and whether its compensation emitted it.
func (w *write) origin(id string) (step string, undo bool) {
	parts := strings.Split(strings.TrimPrefix(id, w.after.Key+"/"), "/")
	return parts[0], len(parts) == 3 && parts[1] == "compensate"
}

func takeOver(w *write) string {
	if w.before.Status != state.StatusInProgress || w.ch.Owner == "" || w.ch.Owner == w.before.Owner {
		return ""
	}
	i := w.before.Next()
	if i == len(w.before.Steps) {
		return ""
	}
	if d, _ := w.def.Find(w.before.Steps[i].Name); d == nil || d.AtMostOnce || w.after.Steps[i].Unknown {
		return ""
	}
	return fmt.Sprintf("a run in progress was taken over, and its step %s is not marked unknown", w.before.Steps[i].Name)
}

func audited(w *write) string {
	if w.before.Status == state.StatusBlocked && len(w.ch.Audit) == 0 || w.before.Status == state.StatusCompleted && !w.by("reverse") {
		return fmt.Sprintf("%s was left without an audit line", w.before.Status)
	}
	return ""
}

// leaseRespected: by the clock of whoever takes a run up, its last holder's lease is over.
func leaseRespected(w *write) string {
	if w.ch.Owner != "" && w.ch.Owner != w.before.Owner && w.before.LeaseLive(w.ch.UpdatedAt) {
		return fmt.Sprintf("the run was taken up %v before its lease was over", w.before.LeaseUntil.Sub(w.ch.UpdatedAt))
	}
	return ""
}

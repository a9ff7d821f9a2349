package killlab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// book is all that is left of a lab: what the ledger has written down, in its order, and the records by their keys.
type book struct {
	lines   []line
	records map[string]*state.Record
	lease   time.Duration
}

// reconcile holds ledger and records against each other, and returns what is wrong.
func reconcile(b book) []string {
	a := &auditor{book: b, byRun: map[string][]line{}, bodies: map[string]string{}}
	for _, l := range b.lines {
		a.sameBody(l)
		run, _ := state.MessageRun(l.Key)
		if b.records[run] == nil {
			a.say(run, "%s %s: a call of no run", l.Kind, l.Key)
		}
		a.byRun[run] = append(a.byRun[run], l)
	}
	for key, rec := range b.records {
		a.run(key, rec)
	}
	slices.Sort(a.wrong)
	return a.wrong
}

type auditor struct {
	book
	byRun  map[string][]line
	bodies map[string]string
	wrong  []string
}

func (a *auditor) say(run, format string, args ...any) {
	a.wrong = append(a.wrong, run+": "+fmt.Sprintf(format, args...))
}

// sameBody: all calls under one derived key are the same call, and all copies of a message the same message.
func (a *auditor) sameBody(l line) {
	id := l.Kind + " " + l.Key
	body, known := a.bodies[id]
	if known && body != l.Body {
		run, _ := state.MessageRun(l.Key)
		a.say(run, "%s: two calls under one key: %q and %q", id, body, l.Body)
	}
	a.bodies[id] = l.Body
}

// stepBook is what the ledger knows of one step.
type stepBook struct {
	dos, undos []line
	id         string // of its effect; empty: there was none
	undone     bool
}

func (a *auditor) run(key string, rec *state.Record) {
	spec := specOf(rec.Operation)
	books := make([]stepBook, len(rec.Steps))
	for _, l := range a.byRun[key] {
		i := rec.StepIndex(l.Step)
		if l.Kind == kindMessage {
			continue
		}
		if i < 0 || l.Of != key+"/"+l.Step {
			a.say(key, "a call of no step: %s %s", l.Kind, l.Key)
			continue
		}
		a.note(key, &books[i], l)
	}
	if len(rec.Outbox.Messages) > 0 {
		a.say(key, "%d messages were never sent", len(rec.Outbox.Messages))
	}
	switch rec.Status {
	case state.StatusCompleted:
		a.completed(key, rec, spec, books)
	case state.StatusFailed:
		a.failed(key, rec, spec, books)
	default:
		a.say(key, "it rests as %s", rec.Status)
	}
	a.atMostOnce(key, rec, spec, books)
	a.messages(key, rec, spec)
}

// note takes a call to the step's book: there is one effect, and every answer names it.
func (a *auditor) note(key string, b *stepBook, l line) {
	switch l.Kind {
	case kindDo:
		b.dos = append(b.dos, l)
		if l.ID != "" && b.id != "" && l.ID != b.id {
			a.say(key, "%s: two effects, %s and %s", l.Step, b.id, l.ID)
		}
		if l.ID != "" {
			b.id = l.ID
		}
	case kindUndo:
		b.undos = append(b.undos, l)
		if l.Took {
			b.undone = true
		}
	}
}

// completed: every step that runs has happened once, with the result that is recorded, one after the other, and nothing
// was undone.
func (a *auditor) completed(key string, rec *state.Record, spec sagaSpec, books []stepBook) {
	var in task
	if err := json.Unmarshal(rec.Input, &in); err != nil {
		a.say(key, "its input: %v", err)
	}
	before, ids := "", []string{}
	for i, s := range rec.Steps {
		b := books[i]
		if len(b.undos) > 0 {
			a.say(key, "%s: undone, and the run is completed", s.Name)
		}
		st, _ := spec.step(s.Name)
		if st.extra && !in.Extras {
			if s.Status != state.StepSkipped || len(b.dos) > 0 {
				a.say(key, "%s: %s after %d calls, and was to be skipped", s.Name, s.Status, len(b.dos))
			}
			continue
		}
		if s.Status != state.StepDone || b.id == "" || outputOf(s) != b.id {
			a.say(key, "%s: %s with the result %q, and the ledger has %q", s.Name, s.Status, outputOf(s), b.id)
			continue
		}
		for _, l := range b.dos {
			if want := bodyOf(in, s.Name, before); l.Body != want {
				a.say(key, "%s: it asked for %q instead of %q", s.Name, l.Body, want)
			}
		}
		a.inTime(key, rec, i, b)
		before, ids = b.id, append(ids, b.id)
	}
	var result []string
	if err := json.Unmarshal(rec.Response, &result); err != nil || !slices.Equal(result, ids) {
		a.say(key, "its result is %s, and the ledger has %q", rec.Response, ids)
	}
}

// inTime: no first call after the step was DONE, none at all much later, and none before the step before it was.
func (a *auditor) inTime(key string, rec *state.Record, i int, b stepBook) {
	done := rec.Steps[i].EndedAt.Add(time.Millisecond)
	first, last := sentBetween(b.dos)
	if first.After(done) || last.After(done.Add(a.stall())) {
		a.say(key, "%s: called after it was DONE", rec.Steps[i].Name)
	}
	for _, s := range rec.Steps[:i] {
		if first.Before(s.EndedAt.Truncate(time.Millisecond)) {
			a.say(key, "%s: called before %s was recorded", rec.Steps[i].Name, s.Name)
		}
	}
}

// stall is how late a call may be whose worker was held up between looking at its lease and making the call.
func (b book) stall() time.Duration { return 3 * b.lease }

func sentBetween(lines []line) (first, last time.Time) {
	for _, l := range lines {
		if first.IsZero() || l.Sent.Before(first) {
			first = l.Sent
		}
		if l.Sent.After(last) {
			last = l.Sent
		}
	}
	return first, last
}

// failed: whatever happened is undone, in reverse order, and nothing else; from the first undo on nothing was done.
func (a *auditor) failed(key string, rec *state.Record, spec sagaSpec, books []stepBook) {
	var firstUndo time.Time
	lastSeq := time.Time{}
	reached := false // a later step that was called or undone
	for i := len(rec.Steps) - 1; i >= 0; i-- {
		s, b := rec.Steps[i], books[i]
		st, _ := spec.step(s.Name)
		if b.id != "" && !b.undone {
			a.say(key, "%s: %s has happened and was not undone", s.Name, b.id)
		}
		if len(b.undos) > 0 && (!st.undone || s.Status != state.StepCompensated) {
			a.say(key, "%s: %s, and its undo was called", s.Name, s.Status)
		}
		if s.Status == state.StepCompensated && !slices.ContainsFunc(b.undos, func(l line) bool { return l.Answer == answerOK }) {
			a.say(key, "%s: recorded as undone, and the ledger knows of no undo", s.Name)
		}
		if s.Status == state.StepDone || s.MayHaveHappened() {
			a.say(key, "%s: %s in a failed run", s.Name, s.Status)
		}
		if len(b.undos) > 0 {
			if b.id == "" && reached {
				a.say(key, "%s: undone, and it can't have happened", s.Name)
			}
			if at := b.undos[0].At; at.Before(lastSeq) {
				a.say(key, "%s: undone before a later step was", s.Name)
			}
			lastSeq = b.undos[0].At
			if firstUndo.IsZero() {
				firstUndo = b.undos[0].Sent
			}
		}
		for _, l := range b.undos {
			if want := undoBody(s.Output != nil, outputOf(s)); l.Body != want || s.Output != nil && outputOf(s) != b.id {
				a.say(key, "%s: %q was asked for, where the ledger has %q and the record %q", s.Name, l.Body, b.id, outputOf(s))
			}
		}
		reached = reached || len(b.undos) > 0 || len(b.dos) > 0
	}
	for i, b := range books {
		if _, last := sentBetween(b.dos); !firstUndo.IsZero() && last.After(firstUndo.Add(a.stall())) {
			a.say(key, "%s: called when the run had turned round", rec.Steps[i].Name)
		}
	}
}

// atMostOnce: one call, and another for each time that a person has cleared the mark.
func (a *auditor) atMostOnce(key string, rec *state.Record, spec sagaSpec, books []stepBook) {
	allowed := 1
	for _, line := range rec.Audit {
		if line.Verb == "retry" {
			allowed++
		}
	}
	once := false
	for i, s := range rec.Steps {
		st, _ := spec.step(s.Name)
		once = once || st.atMostOnce
		if st.atMostOnce && len(books[i].dos) > allowed {
			a.say(key, "%s: called %d times, and at most once was declared", s.Name, len(books[i].dos))
		}
	}
	if allowed > 1 && !once {
		a.say(key, "it was blocked, and has no step that may block it")
	}
}

// messages: each arrives if and only if what emits it is recorded.
func (a *auditor) messages(key string, rec *state.Record, spec sagaSpec) {
	due := map[string]string{}
	for _, s := range rec.Steps {
		st, _ := spec.step(s.Name)
		if st.news && s.Output != nil {
			due[key+"/"+s.Name+"/0"] = newsBody(s.Name, outputOf(s))
		}
		if st.undoNews && s.Status == state.StepCompensated {
			due[key+"/"+s.Name+"/compensate/0"] = undoNewsBody(s.Name)
		}
	}
	arrived := map[string]bool{}
	for _, l := range a.byRun[key] {
		if l.Kind != kindMessage {
			continue
		}
		body, known := due[l.Key]
		switch {
		case !known:
			a.say(key, "the message %s has arrived, and its step is not recorded", l.Key)
		case body != l.Body:
			a.say(key, "the message %s says %q instead of %q", l.Key, l.Body, body)
		}
		arrived[l.Key] = arrived[l.Key] || l.Answer == answerOK
	}
	for id := range due {
		if !arrived[id] {
			a.say(key, "the message %s has not arrived", id)
		}
	}
}

func specOf(operation string) sagaSpec {
	i := slices.IndexFunc(specs, func(s sagaSpec) bool { return s.name == operation })
	if i < 0 {
		return sagaSpec{name: operation}
	}
	return specs[i]
}

func outputOf(s state.StepRecord) string { return strings.Trim(string(s.Output), `"`) }

// figures say what a lab has seen.
func figures(b book) string {
	calls, answers := map[string]int{}, map[string]int{}
	keys := map[string]int{}
	for _, l := range b.lines {
		calls[l.Kind]++
		answers[l.Answer]++
		keys[l.Kind+" "+l.Key]++
	}
	repeated := 0
	for _, n := range keys {
		if n > 1 {
			repeated++
		}
	}
	ended, takeUps, late := map[string]int{}, 0, 0
	for _, rec := range b.records {
		ended[rec.Operation+" "+string(rec.Status)]++
		takeUps += rec.Runs - 1
	}
	for _, l := range b.lines {
		run, _ := state.MessageRun(l.Key)
		rec := b.records[run]
		if rec == nil || l.Kind != kindDo {
			continue
		}
		if s, ok := rec.Step(l.Step); ok && s.Status == state.StepDone && l.Sent.After(s.EndedAt.Add(time.Millisecond)) {
			late++
		}
	}
	return fmt.Sprintf("%d runs, taken up another %d times, ended as %v; %d calls %v, answered %v; %d of %d keys were used more than once, %d calls were late",
		len(b.records), takeUps, ended, len(b.lines), calls, answers, repeated, len(keys), late)
}

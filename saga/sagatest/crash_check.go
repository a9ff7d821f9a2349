package sagatest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// judge says what is wrong with a trial that is over. base is the run of the same scenario without a fault; nil for that
// run itself.
func (t *trial) judge(base *trial) []string {
	rec := t.book.Record()
	wrong := t.book.Broken()
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch {
	case hopeless(t.last):
		say("the run was refused: %v", t.last)
	case rec == nil:
		say("there is no record of the run; the last call gave: %v", t.last)
	case !rec.Status.Ended() && rec.Status != state.StatusBlocked:
		say("the run does not come to rest: after %d take-ups it is %s; the last call gave: %v", rec.Runs, rec.Status, t.last)
	default:
		t.judgeRest(rec, base, say)
	}
	if base == nil && rec != nil && mistaken(rec.Failure) {
		say("without any fault the run failed: %s", rec.Failure.Message)
	}
	if len(wrong) > 0 {
		wrong = append(wrong, t.hints...)
		wrong = append(wrong, t.adviseOn(wrong)...)
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// mistaken tells whether a run failed by a mistake in its declaration, and not by what a participant said.
func mistaken(f *state.Failure) bool {
	return f != nil && (f.Code == saga.CodeInvalidMessage || strings.Contains(f.Message, "not declared") || strings.Contains(f.Message, "its When: "))
}

// adviseOn says what to do about mistakes that show only in the library's own words.
func (t *trial) adviseOn(wrong []string) (advice []string) {
	all := strings.Join(wrong, "\n")
	if strings.Contains(all, "is not declared in this definition") {
		advice = append(advice, "what to do: hand every step whose result is read to Define, in the place where it is to run")
	}
	if strings.Contains(all, "Emit works in a step") {
		advice = append(advice, "what to do: emit messages in a step, where its commit makes them due; the result function and When are called again and commit nothing of their own")
	}
	return advice
}

func (t *trial) judgeRest(rec *state.Record, base *trial, say func(string, ...any)) {
	t.judgeEnd(rec, base, say)
	t.judgeEffects(rec, say)
	t.judgeUndos(rec, say)
	t.judgeMessages(base, say)
}

// judgeEnd compares what the run came to with the run without the fault.
func (t *trial) judgeEnd(rec *state.Record, base *trial, say func(string, ...any)) {
	if base == nil || len(t.strikes) == 0 {
		return
	}
	want := base.book.Record()
	if t.oneAnswer() && rec.Runs != want.Runs {
		say("one write that was not answered made the run change hands: it was taken up %d times, and %d times without the fault", rec.Runs, want.Runs)
	}
	dropped := slices.ContainsFunc(rec.Audit, func(a state.AuditEntry) bool { return a.Verb == "cancel_dropped" })
	switch {
	case t.cancelled && !base.cancelled && !dropped && rec.Status == state.StatusCompleted:
		say("a cancel request was accepted, and the run is COMPLETED all the same")
	case sameEnd(rec, want):
	case t.cancelled && rec.Status == state.StatusFailed && code(rec) == saga.CodeCancelled:
	case t.lab.excuses(rec):
	default:
		say("the run ended as %s; without the fault it ends as %s", describe(rec), describe(want))
	}
}

// oneAnswer tells whether all that went wrong is that one write failed, or was not answered.
func (t *trial) oneAnswer() bool {
	last := t.strikes[len(t.strikes)-1]
	return (last.fault == lost || last.fault == fails) && strings.Contains(last.at, " write ")
}

func sameEnd(a, b *state.Record) bool {
	return a.Status == b.Status && bytes.Equal(a.Response, b.Response) && code(a) == code(b) &&
		(a.Failure == nil) == (b.Failure == nil) && (a.Failure == nil || a.Failure.Step == b.Failure.Step)
}

func code(rec *state.Record) string {
	if rec.Failure == nil {
		return ""
	}
	return rec.Failure.Code
}

func describe(rec *state.Record) string {
	s := string(rec.Status)
	if rec.Failure != nil {
		s += fmt.Sprintf(" (step %q, code %q: %s)", rec.Failure.Step, rec.Failure.Code, rec.Failure.Message)
	}
	if rec.Response != nil {
		s += fmt.Sprintf(" with %d bytes of result", len(rec.Response))
		if len(rec.Response) <= 200 {
			s += ": " + string(rec.Response)
		}
	}
	return s
}

// excuses tells of ends that the declaration itself allows when something goes wrong: limits that a crash uses up, and
// effects that nobody may repeat.
func (l *lab) excuses(rec *state.Record) bool {
	c := code(rec)
	if c == saga.CodeDeadline {
		return l.def.Deadline > 0
	}
	for _, s := range l.def.Steps {
		switch {
		case c == saga.CodeMaxAttempts && s.MaxAttempts > 0,
			c == saga.CodeKeyExpired && s.KeyValid > 0,
			c == saga.CodeUnresolved && s.AtMostOnce && rec.Status == state.StatusBlocked:
			return true
		}
	}
	return false
}

// judgeEffects balances what stands in the outside world against the record.
func (t *trial) judgeEffects(rec *state.Record, say func(string, ...any)) {
	for _, e := range t.rec.all() {
		s, ok := rec.Step(e.step)
		d, _ := t.lab.def.Find(e.step)
		if !ok || d == nil || rec.Status == state.StatusBlocked {
			continue
		}
		back := rec.Status == state.StatusFailed || rec.Status == state.StatusReversed
		switch {
		case back && d.Undo != nil && !e.undone:
			say("the run is %s, and the effect of step %s under the key %s still stands; its compensation must undo what the step may have done: by did.Output where did.Known, else by did.Key", rec.Status, e.step, e.key)
		case !back && e.undone:
			say("the run is %s, and the effect of step %s under the key %s was undone", rec.Status, e.step, e.key)
		case back && e.undone && s.Status != state.StepCompensated:
			say("step %s is recorded as %s, and its effect under the key %s was undone", e.step, s.Status, e.key)
		}
	}
}

// judgeUndos looks for compensations that nothing called for.
func (t *trial) judgeUndos(rec *state.Record, say func(string, ...any)) {
	for _, s := range rec.Steps {
		called := t.undos[s.Name]
		switch {
		case s.Status == state.StepCompensated && !called:
			say("step %s is recorded as undone, and its compensation was never called", s.Name)
		case called && s.Status != state.StepCompensated && rec.Status != state.StatusBlocked:
			say("the compensation of step %s was called, and the step is recorded as %s", s.Name, s.Status)
		}
	}
}

// judgeMessages: a message arrives if and only if its step is recorded.
func (t *trial) judgeMessages(base *trial, say func(string, ...any)) {
	due := map[string]bool{}
	for _, m := range t.book.Messages() {
		due[m.ID] = true
		if _, ok := t.arrived[m.ID]; !ok {
			say("message %s became due and never arrived", m.ID)
		}
	}
	for id := range t.arrived {
		if !due[id] {
			say("message %s arrived, and no step's commit has made it due", id)
		}
	}
	if base == nil {
		return
	}
	for _, m := range base.book.Messages() {
		step := strings.Split(strings.TrimPrefix(m.ID, t.lab.runKey+"/"), "/")[0]
		if !due[m.ID] && t.book.WasDone(step) && !strings.Contains(m.ID, "/compensate/") {
			say("step %s is recorded, and its message %s, which is there without the fault, is missing; where a Probe finds the step done, the Probe has to emit it", step, m.ID)
		}
	}
}

package laws

import (
	"fmt"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Book follows one run: the record as it is stored now, what it has been, and which laws were broken. Its methods may be
// called concurrently.
type Book struct {
	def drive.Definition

	mu          sync.Mutex
	rec         *state.Record
	writes      int
	done        map[string]bool
	messages    []outbox.Message
	known       map[string]bool
	broken      []string
	transitions map[Transition]int
}

// Transition is a change of a run's status. From is empty for the record's creation.
type Transition struct{ From, To state.Status }

// NewBook follows a run of this definition.
func NewBook(def drive.Definition) *Book {
	return &Book{def: def, done: map[string]bool{}, known: map[string]bool{}, transitions: map[Transition]int{}}
}

// Break notes what a caller has found to be wrong.
func (b *Book) Break(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaks(format, args...)
}

func (b *Book) breaks(format string, args ...any) {
	b.broken = append(b.broken, fmt.Sprintf(format, args...))
}

// Broken is what was found to be wrong so far.
func (b *Book) Broken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.broken...)
}

// Record is the record as it is stored, for the caller to keep; nil when there is none.
func (b *Book) Record() *state.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec == nil {
		return nil
	}
	return b.rec.Clone()
}

// WasDone tells whether the step was ever recorded as DONE.
func (b *Book) WasDone(step string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done[step]
}

// Messages are all that became due, in order.
func (b *Book) Messages() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Message(nil), b.messages...)
}

// Transitions counts the changes of status so far.
func (b *Book) Transitions() map[Transition]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[Transition]int{}
	for t, n := range b.transitions {
		out[t] = n
	}
	return out
}

func (b *Book) created(rec *state.Record) {
	if b.rec != nil {
		b.breaks("law %q: the run was created a second time", "one record a run")
	}
	b.rec, b.writes = rec, b.writes+1
	b.transitions[Transition{"", rec.Status}]++
	for _, s := range rec.Steps {
		if rec.Status != state.StatusInProgress || s.Status != state.StepPending && s.Status != state.StepSkipped {
			b.breaks("law %q: created as %s with step %s %s", "a new record", rec.Status, s.Name, s.Status)
		}
	}
}

func (b *Book) committed(ch *state.Change, after *state.Record) {
	w := &write{def: &b.def, before: b.rec, after: after, ch: ch, known: b.known}
	if w.before == nil {
		b.breaks("law %q: a commit to a run that was not created", "one record a run")
		b.rec = after
		return
	}
	for name, law := range laws {
		if wrong := law(w); wrong != "" {
			b.breaks("law %q: %s", name, wrong)
		}
	}
	b.transitions[Transition{w.before.Status, after.Status}]++
	for _, s := range after.Steps {
		b.done[s.Name] = b.done[s.Name] || s.Status == state.StepDone
	}
	for _, m := range ch.Messages {
		b.known[m.ID] = true
		b.messages = append(b.messages, state.CloneMessage(m))
	}
	b.rec, b.writes = after, b.writes+1
}

// MayStart holds the start of a function against the record that its holder knows: a step starts only while it is
// recorded as unfinished and all before it as finished, an undo only when the turn and all undos behind it are recorded.
func (b *Book) MayStart(rec *state.Record, step string, phase drive.Phase) {
	if wrong := mayStart(&b.def, rec, step, phase); wrong != "" {
		b.Break("law %q: the %s of step %s started while %s", "calls", phase, step, wrong)
	}
}

func mayStart(def *drive.Definition, rec *state.Record, step string, phase drive.Phase) string {
	if rec == nil {
		return "there is no record"
	}
	i := rec.StepIndex(step)
	if i < 0 {
		return "it is not in the plan"
	}
	s := rec.Steps[i]
	d, _ := def.Find(step)
	switch phase {
	case drive.Do:
		if rec.Status != state.StatusInProgress || rec.Next() != i {
			return fmt.Sprintf("the run is %s and the step %s", rec.Status, s.Status)
		}
		if d.AtMostOnce && s.Status != state.StepStarted {
			return "an at-most-once step is not marked as started"
		}
	case drive.Undo:
		if rec.Status != state.StatusCompensating || !s.MayHaveHappened() {
			return fmt.Sprintf("the run is %s and the step %s", rec.Status, s.Status)
		}
		for _, later := range rec.Steps[i+1:] {
			if d, _ := def.Find(later.Name); later.MayHaveHappened() && d != nil && d.Undo != nil {
				return fmt.Sprintf("%s behind it is still to be undone", later.Name)
			}
		}
	}
	// A probe changes nothing: a holder that has lost the run may ask, and finds out at its next write.
	return ""
}

package sagatest

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// lab is everything that the trials of one call of Crash share. It has no type parameters.
type lab struct {
	t      testing.TB
	cfg    crashConfig
	def    drive.Definition
	runKey string
	open   func(*Recorder, state.Store, []saga.Option) (runner, error)
	world  *clock.Fake // the store's clock, and the outside world's
	store  state.Store
	lease  time.Duration
	only   string

	mu     sync.Mutex
	notes  notes
	calls  map[string]bool // functions that were called: "do charge"
	report CrashReport
	failed int
	said   map[string]int // how often a complaint was made, by its words
}

// scenario is a way to run the saga, for which every boundary is met by every fault.
type scenario struct {
	name    string
	setup   []strike
	reverse bool
}

// passes moves the world's clock on.
func (l *lab) passes(now time.Time) {
	if d := now.Sub(l.world.Now()); d > 0 {
		l.world.Advance(d)
	}
}

func (l *lab) called(phase drive.Phase, step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[string(phase)+" "+step] = true
}

// trial plays one trial and clears the store behind it.
func (l *lab) trial(s scenario, strikes ...strike) *trial {
	l.t.Helper()
	l.passes(l.world.Now().Add(37 * time.Hour))
	t := l.newTrial(append(slices.Clone(s.setup), strikes...))
	t.play(l.t.Context(), s.reverse)
	if err := l.store.Delete(l.t.Context(), l.runKey); err != nil {
		l.t.Fatalf("sagatest: the store can't be cleared after a run: %v", err)
	}
	l.report.Runs++
	return t
}

// run is the whole of it.
func (l *lab) run() {
	l.t.Helper()
	plain := scenario{name: "run"}
	base := l.trial(plain)
	if !l.accept(plain, base) {
		return
	}
	l.accept(plain, l.trial(plain)) // at another time, with other random numbers
	for _, s := range append([]scenario{plain}, l.scenarios(base)...) {
		l.explore(s)
	}
	l.conclude()
}

// accept judges a run without a fault; nothing can be learnt from a wrong one.
func (l *lab) accept(s scenario, base *trial) bool {
	l.t.Helper()
	wrong := base.judge(nil)
	if base.missed() {
		return false // its set-up can't be reached any more: said elsewhere
	}
	if len(wrong) == 0 {
		return true
	}
	l.complain(s.name+"/without a fault", "", wrong)
	return false
}

// scenarios are the ways back of a saga that completes: by a cancel, when it is known what the last step did, when it is
// not, and when it did nothing without anybody knowing; and by a reversal.
func (l *lab) scenarios(base *trial) (out []scenario) {
	if base.book.Record().Status != state.StatusCompleted {
		return nil
	}
	for _, way := range []struct {
		after bool
		fault fault
	}{{true, cancels}, {true, diesCancel}, {false, diesCancel}} {
		for _, b := range slices.Backward(base.reached) {
			step, is := strings.CutPrefix(b.name, whose(way.after, string(drive.Do)+" "))
			if d, _ := l.def.Find(step); !is || b.place != atFunction || d == nil || d.Undo == nil {
				continue
			}
			s := scenario{name: fmt.Sprintf("%s %s", way.fault, b.name), setup: []strike{{b.name, way.fault}}}
			if t := l.trial(s); t.cancelled && t.book.Record().Status == state.StatusFailed {
				out = append(out, s)
				break
			}
		}
	}
	return append(out, scenario{name: "reversed", reverse: true})
}

// explore meets every boundary of a scenario with every fault.
func (l *lab) explore(s scenario) {
	l.t.Helper()
	base := l.trial(s)
	if !l.accept(s, base) {
		return
	}
	from := 0
	if len(base.hitAt) > 0 {
		from = base.hitAt[0]
	}
	if s.reverse {
		from = slices.IndexFunc(base.reached, func(b boundary) bool { return strings.Contains(b.name, string(state.StatusCompensating)) })
		if from < 0 {
			return
		}
	}
	for _, b := range base.reached[from:] {
		l.report.Boundaries++
		for _, f := range faultsAt(b) {
			if (f == cancels || f == diesCancel) && (len(s.setup) > 0 || s.reverse) {
				continue // it goes backwards already
			}
			l.strike(s, base, strike{b.name, f})
		}
	}
}

// strike is one trial with a fault, judged.
func (l *lab) strike(s scenario, base *trial, at strike) {
	l.t.Helper()
	name := fmt.Sprintf("%s/%s/%s", s.name, at.at, at.fault)
	switch {
	case l.only != "" && l.only != name:
		return
	case l.only == "" && l.cfg.oneIn > 1 && crc32.ChecksumIEEE([]byte(name))%uint32(l.cfg.oneIn) != 0: //nolint:gosec // a small number
		l.report.Left++
		return
	}
	t := l.trial(s, at)
	l.report.Faults[string(at.fault)]++
	wrong := t.judge(base)
	if t.missed() {
		wrong = append(wrong, "the boundary was reached in the run without faults, and not in this one: the saga does not do the same each time")
	}
	if len(wrong) > 0 {
		l.complain(name, name, wrong)
	}
}

const mostComplaints = 4

// complain fails the test. What was said a few times already is only counted.
func (l *lab) complain(where, only string, wrong []string) {
	l.t.Helper()
	l.failed++
	shape := strings.Join(wrong, "\n")
	if l.said[shape]++; l.said[shape] > 1 || len(l.said) > mostComplaints {
		return
	}
	text := fmt.Sprintf("sagatest: %s, %s:\n  - %s", l.runKey, where, strings.Join(wrong, "\n  - "))
	if only != "" {
		text += "\n  again, this one alone: " + again(l.t.Name(), only)
	}
	l.t.Errorf("%s", text)
}

// again is the line that repeats one trial.
func again(test, only string) string {
	parts := strings.Split(test, "/")
	for i := range parts {
		parts[i] = "^" + parts[i] + "$"
	}
	return fmt.Sprintf("go test -run '%s' . -%s='%s'", strings.Join(parts, "/"), onlyFlag, strings.ReplaceAll(only, "'", `'\''`))
}

// conclude says what was reached and what was not.
func (l *lab) conclude() {
	l.t.Helper()
	for _, s := range l.def.Steps {
		for phase, declared := range map[drive.Phase]bool{drive.Do: true, drive.Undo: s.Undo != nil, drive.Probe: s.Probe != nil} {
			if name := string(phase) + " " + s.Name; declared && !l.calls[name] {
				l.report.NeverReached = append(l.report.NeverReached, name)
			}
		}
	}
	slices.Sort(l.report.NeverReached)
	if l.only != "" && l.report.Struck() == 0 {
		l.t.Errorf("sagatest: -%s=%q: there is no such run of this saga", onlyFlag, l.only)
	}
	if len(l.report.NeverReached) > 0 {
		l.t.Logf("sagatest: %s: no run has reached: %s", l.runKey, strings.Join(l.report.NeverReached, ", "))
	}
	if l.failed > 0 {
		l.t.Errorf("sagatest: %s: %d of %d runs went wrong", l.runKey, l.failed, l.report.Runs)
	}
}

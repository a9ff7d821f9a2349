package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// plan is a definition with its types erased. It never changes once an orchestrator has it.
type plan struct {
	name        string
	version     int
	steps       []drive.Step
	index       map[any]int // by the step's origin
	result      func(context.Context, *drive.Call) drive.Result
	fingerprint func(raw json.RawMessage) (json.RawMessage, error)
	deadline    time.Duration
	retention   time.Duration
	previous    map[int]*plan
	problems    []string
}

func (p *plan) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

func (p *plan) clone() *plan {
	c := *p
	c.steps = slices.Clone(p.steps)
	c.index = maps.Clone(p.index)
	c.problems = slices.Clone(p.problems)
	return &c
}

// check reports everything that is wrong with the declaration at once.
func (p *plan) check() error {
	found := slices.Clone(p.problems)
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if !validName(p.name) {
		add("the name %q must be 1 to 64 letters, digits, '_', '-' or '.'", p.name)
	}
	if len(p.steps) == 0 {
		add("it has no step")
	}
	names := map[string]bool{}
	for i := range p.steps {
		s := &p.steps[i]
		if s.Do == nil {
			continue // a nil step, reported already
		}
		switch {
		case !validName(s.Name):
			add("step %d: the name %q must be 1 to 64 letters, digits, '_', '-' or '.'", i+1, s.Name)
		case names[s.Name]:
			add("step %s: the name stands twice", s.Name)
		}
		names[s.Name] = true
		for _, problem := range s.Problems {
			add("step %s: %s", s.Name, problem)
		}
	}
	p.checkPivot(add)
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("saga: %w: %q: %s", ErrInvalidDefinition, p.name, strings.Join(found, "; "))
}

func (p *plan) checkPivot(add func(string, ...any)) {
	pivot := -1
	for i := range p.steps {
		if !p.steps[i].Pivot {
			continue
		}
		if pivot >= 0 {
			add("step %s: a second pivot, after %s", p.steps[i].Name, p.steps[pivot].Name)
		}
		pivot = i
	}
	for i := range max(pivot, 0) {
		if s := &p.steps[i]; s.Do != nil && !s.Compensable() {
			add("step %s: it stands before the pivot %s and has no compensation; declare Compensate, or NoCompensation when there is nothing to undo", s.Name, p.steps[pivot].Name)
		}
	}
}

func validName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

func (p *plan) names() []string {
	out := make([]string, len(p.steps))
	for i := range p.steps {
		out[i] = p.steps[i].Name
	}
	return out
}

func (p *plan) pivot() string {
	for i := range p.steps {
		if p.steps[i].Pivot {
			return p.steps[i].Name
		}
	}
	return ""
}

// means is what the step at a position has declared for the way back. A stored step that is not declared can't be met:
// fits has refused the run before.
func (p *plan) means(i int) compensate.Means {
	switch {
	case i >= len(p.steps) || p.steps[i].Undo == nil && !p.steps[i].NothingToUndo:
		return compensate.Undeclared
	case p.steps[i].Undo == nil:
		return compensate.NothingToUndo
	}
	return compensate.Compensation
}

// of is the declaration by which a run of this version is hashed and continued.
func (p *plan) of(version int) (*plan, bool) {
	if version == p.version {
		return p, true
	}
	q, ok := p.previous[version]
	return q, ok
}

// fits tells whether this declaration may continue the stored plan, which must be a prefix of the declared steps.
func (p *plan) fits(rec *state.Record) error {
	for i, name := range rec.Plan {
		switch {
		case i >= len(p.steps):
			return fmt.Errorf("the stored plan has step %d %q, which is not declared (removed, or this declaration is older than the run)", i+1, name)
		case p.steps[i].Name != name:
			return fmt.Errorf("step %d was %q and is declared as %q (renamed, removed, inserted or reordered)", i+1, name, p.steps[i].Name)
		}
	}
	declared := p.pivot()
	if declared != rec.Pivot && !(rec.Pivot == "" && !slices.Contains(rec.Plan, declared)) {
		return fmt.Errorf("the pivot was %q and is declared as %q", rec.Pivot, declared)
	}
	return nil
}

func (p *plan) hash(raw json.RawMessage) (string, error) {
	picked, err := p.fingerprint(raw)
	if err != nil {
		return "", err
	}
	return state.PayloadHash(picked)
}

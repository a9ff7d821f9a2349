package compensate

import "github.com/tsuzuki-go/tsuzuki/state"

// Means is what a step has declared for the way back.
type Means int

// What a step may have declared.
const (
	// Nothing declared: when the run goes backwards, the effect stands and is listed as not undone.
	Undeclared Means = iota
	// NothingToUndo was said on purpose.
	NothingToUndo
	// Compensation is declared.
	Compensation
)

// Plan is what going backwards has still to do.
type Plan struct {
	// Undo is the positions of the steps to be undone, the last one first.
	Undo []int
	// NotUndone is the names of the steps whose effect stands, or may stand, and that declare nothing, in the plan's order.
	NotUndone []string
}

// NewPlan looks at the entries of all steps: those that are done, started or unknown, and not undone yet, are to be
// undone in reverse order. means tells what the step at a position has declared.
func NewPlan(steps []state.StepRecord, means func(i int) Means) Plan {
	var p Plan
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].MayHaveHappened() && means(i) == Compensation {
			p.Undo = append(p.Undo, i)
		}
	}
	for i, s := range steps {
		if s.MayHaveHappened() && means(i) == Undeclared {
			p.NotUndone = append(p.NotUndone, s.Name)
		}
	}
	return p
}

// MayGoBack is the rule of the pivot: a run goes backwards by itself only while its pivot neither is done nor may have
// happened. Without a pivot it always may.
func MayGoBack(steps []state.StepRecord, pivot string) bool {
	if pivot == "" {
		return true
	}
	for _, s := range steps {
		if s.Name == pivot {
			return !s.MayHaveHappened()
		}
	}
	return true
}

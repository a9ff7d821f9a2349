package compensate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// most is how many steps a plan has here.
const most = 5

// entry is what one step may look like, with what the design says of it, written down here by hand: standing tells
// whether its effect stands or may stand.
type entry struct {
	status   state.StepStatus
	unknown  bool
	standing bool
}

// entries are all that a step may look like.
var entries = []entry{
	{state.StepPending, false, false}, // never called, or every attempt was refused for good
	{state.StepPending, true, true},   // an attempt ended without a definite answer
	{state.StepStarted, false, true},  // the mark of an at-most-once step, and no word since
	{state.StepStarted, true, true},
	{state.StepDone, false, true},
	{state.StepDone, true, true},
	{state.StepSkipped, false, false},
	{state.StepSkipped, true, false},      // it was decided not to run: nothing of it stands
	{state.StepCompensating, false, true}, // an undo ended without success
	{state.StepCompensating, true, true},
	{state.StepCompensated, false, false},
	{state.StepCompensated, true, false}, // it was unknown, and its key was made unusable
}

// kinds are what a step may have declared.
var kinds = []compensate.Means{compensate.Undeclared, compensate.NothingToUndo, compensate.Compensation}

func TestTheEntriesAreAllThereAre(t *testing.T) {
	t.Parallel()
	require.Len(t, entries, 2*len(state.StepStatuses()))
	for _, s := range state.StepStatuses() {
		for _, unknown := range []bool{false, true} {
			require.True(t, slices.ContainsFunc(entries, func(e entry) bool { return e.status == s && e.unknown == unknown }), "%s, unknown: %v", s, unknown)
		}
	}
}

// vector calls f with every vector of n of k things, reusing the slice.
func vector(n, k int, f func(v []int)) {
	v := make([]int, n)
	for {
		f(v)
		i := 0
		for ; i < n; i++ {
			if v[i]++; v[i] < k {
				break
			}
			v[i] = 0
		}
		if i == n {
			return
		}
	}
}

func records(v []int) []state.StepRecord {
	out := make([]state.StepRecord, len(v))
	for i, e := range v {
		out[i] = state.StepRecord{Name: fmt.Sprintf("s%d", i), Status: entries[e].status, Unknown: entries[e].unknown}
	}
	return out
}

// wanted is the oracle: it takes the steps off a stack, the last one first, and asks of each what happens to it.
func wanted(v []int, declared []int) (undo []int, notUndone []string) {
	var stack []int
	for i, e := range v {
		if entries[e].standing {
			stack = append(stack, i)
		}
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch kinds[declared[i]] {
		case compensate.Compensation:
			undo = append(undo, i)
		case compensate.Undeclared:
			notUndone = append([]string{fmt.Sprintf("s%d", i)}, notUndone...)
		}
	}
	return undo, notUndone
}

// Every vector of step states up to five steps; where all that steps may have declared would be too many, a part of the
// declarations that changes from vector to vector, so that each step meets each.
func TestThePlanOfEveryVectorOfStepStates(t *testing.T) {
	t.Parallel()
	plans := 0
	for n := 0; n <= most; n++ {
		nth := 0
		vector(n, len(entries), func(v []int) {
			steps := records(v)
			before := slices.Clone(steps)
			check := func(declared []int) {
				plans++
				p := compensate.NewPlan(steps, func(i int) compensate.Means { return kinds[declared[i]] })
				undo, notUndone := wanted(v, declared)
				if !slices.Equal(undo, p.Undo) || !slices.Equal(notUndone, p.NotUndone) {
					t.Fatalf("%s, declared %v: plan %+v, want %v and %v", show(v), declared, p, undo, notUndone)
				}
			}
			if n <= 3 {
				vector(n, len(kinds), check)
			} else {
				declared := make([]int, n)
				for range 3 {
					for i := range declared {
						declared[i] = (nth / pow(3, i)) % len(kinds)
					}
					check(declared)
					nth++
				}
			}
			if !slices.EqualFunc(before, steps, func(a, b state.StepRecord) bool { return a.Status == b.Status && a.Unknown == b.Unknown }) {
				t.Fatalf("%s: the plan has changed the entries", show(v))
			}
		})
	}
	require.Greater(t, plans, 3*pow(len(entries), most))
}

func pow(b, n int) int {
	out := 1
	for range n {
		out *= b
	}
	return out
}

func show(v []int) string {
	var words []string
	for _, e := range v {
		w := string(entries[e].status)
		if entries[e].unknown {
			w += "?"
		}
		words = append(words, w)
	}
	return "[" + strings.Join(words, " ") + "]"
}

// A plan made again after each undo is what is left of the plan before: so a crash at any point changes nothing.
func TestThePlanIsResumable(t *testing.T) {
	t.Parallel()
	all := func(int) compensate.Means { return compensate.Compensation }
	vector(4, len(entries), func(v []int) {
		steps := records(v)
		p := compensate.NewPlan(steps, all)
		for len(p.Undo) > 0 {
			steps[p.Undo[0]].Status = state.StepCompensating // an attempt to undo it failed
			again := compensate.NewPlan(steps, all)
			if !slices.Equal(p.Undo, again.Undo) {
				t.Fatalf("%s: a failed undo made the plan %v of %v", show(v), again.Undo, p.Undo)
			}
			steps[p.Undo[0]].Status = state.StepCompensated
			next := compensate.NewPlan(steps, all)
			if !slices.Equal(p.Undo[1:], next.Undo) {
				t.Fatalf("%s: after an undo the plan is %v, want %v", show(v), next.Undo, p.Undo[1:])
			}
			p = next
		}
	})
}

// The rule of the pivot, for every vector and every place of it.
func TestARunGoesBackOnlyWhileItsPivotCannotHaveHappened(t *testing.T) {
	t.Parallel()
	for n := 0; n <= most; n++ {
		vector(n, len(entries), func(v []int) {
			steps := records(v)
			if !compensate.MayGoBack(steps, "") {
				t.Fatalf("%s without a pivot", show(v))
			}
			for i, e := range v {
				if got := compensate.MayGoBack(steps, steps[i].Name); got == entries[e].standing {
					t.Fatalf("%s, pivot %s: may go back: %v", show(v), steps[i].Name, got)
				}
			}
		})
	}
}

// A pivot that the stored plan does not have yet has not happened.
func TestAPivotOutsideThePlanForbidsNothing(t *testing.T) {
	t.Parallel()
	require.True(t, compensate.MayGoBack(records([]int{4}), "appended later"))
}

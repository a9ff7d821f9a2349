// Package compensate decides what must be undone and in which order, and undoes it in a way that can be resumed at any
// point (backward recovery of sagas: Garcia-Molina and Salem, Sagas, 1987).
//
// [NewPlan] is pure: it looks at the step entries alone, so that a run taken up after a crash comes to the same plan.
// [Run] is the loop: each undo is recorded before the next starts.
package compensate

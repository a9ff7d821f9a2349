package state

import (
	"errors"
	"fmt"
	"slices"
)

// Status is where a run stands.
type Status string

// The statuses of a run. docs/state-machine.md draws them.
const (
	// StatusInProgress: a holder is at work on the forward steps, or has died there.
	StatusInProgress Status = "IN_PROGRESS"
	// StatusInterrupted: a forward step stopped on a transient error or for lack of time; the same key goes on.
	StatusInterrupted Status = "INTERRUPTED"
	// StatusCompensating: going backwards; whether someone is at work shows in the lease.
	StatusCompensating Status = "COMPENSATING"
	// StatusCompleted: every step is done or skipped. Ended.
	StatusCompleted Status = "COMPLETED"
	// StatusFailed: failed for good, and undone. Ended.
	StatusFailed Status = "FAILED"
	// StatusBlocked: an operator is needed.
	StatusBlocked Status = "BLOCKED"
	// StatusReversed: it was completed and later undone on purpose. Ended.
	StatusReversed Status = "REVERSED"
)

// Statuses are all statuses, in the order of the constants. The caller may change the slice.
func Statuses() []Status {
	return []Status{StatusInProgress, StatusInterrupted, StatusCompensating, StatusCompleted, StatusFailed, StatusBlocked, StatusReversed}
}

var transitions = map[Status][]Status{
	StatusInProgress:   {StatusInProgress, StatusCompleted, StatusInterrupted, StatusCompensating, StatusBlocked},
	StatusInterrupted:  {StatusInProgress, StatusCompensating},
	StatusCompensating: {StatusCompensating, StatusFailed, StatusReversed, StatusBlocked},
	StatusBlocked:      {StatusCompensating, StatusInterrupted},
	StatusCompleted:    {StatusCompensating},
	StatusFailed:       {},
	StatusReversed:     {},
}

// Valid tells whether s is one of the statuses.
func (s Status) Valid() bool {
	_, ok := transitions[s]
	return ok
}

// Ended tells whether a run of this status is over: COMPLETED, FAILED or REVERSED. Only ended records expire.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusReversed
}

// CanBecome tells whether one write may lead from s to next. Only IN_PROGRESS and COMPENSATING may stay what they are
// (a step or an undo recorded, a lease renewed).
func (s Status) CanBecome(next Status) bool {
	return slices.Contains(transitions[s], next)
}

// ErrTransition is the class of an illegal change of status: a defect of the library, or of a store.
var ErrTransition = errors.New("illegal transition")

func checkTransition(from, to Status) error {
	if !from.CanBecome(to) {
		return fmt.Errorf("state: %w: %s to %s", ErrTransition, from, to)
	}
	return nil
}

// StepStatus is where one step stands.
type StepStatus string

// The statuses of a step.
const (
	// StepPending: not recorded as done. Whether it may have happened all the same, see StepRecord.Unknown.
	StepPending StepStatus = "PENDING"
	// StepStarted: the mark of an at-most-once step, committed before its one call.
	StepStarted StepStatus = "STARTED"
	// StepDone: it returned nil, and that is recorded. It never starts again.
	StepDone StepStatus = "DONE"
	// StepSkipped: its When said no.
	StepSkipped StepStatus = "SKIPPED"
	// StepCompensating: an attempt to undo it ended without success.
	StepCompensating StepStatus = "COMPENSATING"
	// StepCompensated: undone, and that is recorded.
	StepCompensated StepStatus = "COMPENSATED"
)

// StepStatuses are all statuses of a step, in the order of the constants. The caller may change the slice.
func StepStatuses() []StepStatus {
	return []StepStatus{StepPending, StepStarted, StepDone, StepSkipped, StepCompensating, StepCompensated}
}

// Valid tells whether s is one of the statuses.
func (s StepStatus) Valid() bool { return slices.Contains(StepStatuses(), s) }

// Finished tells whether the run goes on behind a step of this status: DONE or SKIPPED.
func (s StepStatus) Finished() bool { return s == StepDone || s == StepSkipped }

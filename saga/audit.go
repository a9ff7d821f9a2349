package saga

import (
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// The verbs of audit lines, and the library's own name in them.
const (
	verbRetry           = "retry"
	verbMarkDone        = "mark_done"
	verbMarkCompensated = "mark_compensated"
	verbForce           = "force_compensate"
	verbReverse         = "reverse"
	verbCancelDropped   = "cancel_dropped"

	libraryActor = "tsuzuki"
)

// cancelDropped is the library's line about a request that a pivot has overtaken.
func cancelDropped(at time.Time, pivot string) state.AuditEntry {
	return state.AuditEntry{At: at, Actor: libraryActor, Verb: verbCancelDropped, Step: pivot, Note: "the pivot was done before the cancel could be obeyed"}
}

// sameLine tells whether a stored line is this one.
func sameLine(a state.AuditEntry) func(state.AuditEntry) bool {
	return func(b state.AuditEntry) bool {
		return a.At.Equal(b.At) && a.Actor == b.Actor && a.Verb == b.Verb && a.Step == b.Step && a.Note == b.Note
	}
}

package sagatest

import (
	"fmt"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// place is where a boundary lies.
type place int

const (
	atFunction place = iota // of a step, a compensation or a probe
	atCall                  // of a Recorder
	atWrite                 // to the store
	atMessage               // its publication
)

// boundary is a point of a run at which something can happen. Its name is the same in every run up to there.
type boundary struct {
	name  string
	place place
	after bool
}

// fault is what happens at a boundary.
type fault string

const (
	dies       fault = "the process dies"
	diesCancel fault = "the process dies and a cancel arrives"
	cancels    fault = "a cancel arrives"
	takenOver  fault = "the lease lapses and another takes over"
	lost       fault = "the answer is lost"
	fails      fault = "it fails"
	goesAway   fault = "the store goes away"
	arrives    fault = "the write arrives after all others"
)

// strike is a fault at a boundary.
type strike struct {
	at    string
	fault fault
}

// faultsAt are the faults that can meet a boundary.
func faultsAt(b boundary) []fault {
	switch b.place {
	case atCall:
		if b.after {
			return []fault{dies, lost}
		}
		return []fault{dies, fails, takenOver}
	case atWrite:
		if b.after {
			return []fault{dies, diesCancel, cancels, takenOver, lost, goesAway}
		}
		return []fault{dies, diesCancel, cancels, takenOver, fails, goesAway, arrives}
	case atMessage:
		if b.after {
			return []fault{dies, lost}
		}
		return []fault{dies, fails}
	}
	if b.after {
		return []fault{dies, diesCancel, cancels, takenOver, lost}
	}
	return []fault{dies, diesCancel, cancels, takenOver, fails}
}

// whose is "before" or "after" what.
func whose(after bool, what string) string {
	if after {
		return "after " + what
	}
	return "before " + what
}

// writeName says what a write records.
func writeName(c StoreCall) string {
	if c.Record != nil {
		return "create"
	}
	ch := c.Change
	var parts []string
	if TakesUp(c) {
		parts = append(parts, "take-up")
	}
	if ch.Status != state.StatusInProgress {
		parts = append(parts, string(ch.Status))
	}
	for _, s := range ch.Steps {
		parts = append(parts, fmt.Sprintf("%s=%s", s.Name, s.Status))
	}
	return strings.Join(parts, " ")
}

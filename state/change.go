package state

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Change is one fenced write to a record: the condition under which it is made, the header as it is afterwards, and what
// is new. [Change.Apply] is its meaning.
type Change struct {
	// Key of the record.
	Key string

	// IfOwner and IfRevision are the fence: the stored record must have this owner and this revision.
	IfOwner    string
	IfRevision int64
	// IfNoCancel refuses the write when a cancel request is stored.
	IfNoCancel bool

	// WriteID names this logical write; a write that is sent again keeps it.
	WriteID string

	// What follows is the header as it is after the write, zero values included. Apply raises the revision by one.
	Owner       string
	Runs        int
	Status      Status
	EndsAs      Status
	CurrentStep string
	LeaseUntil  time.Time
	NotBefore   time.Time
	ExpiresAt   time.Time
	UpdatedAt   time.Time
	Failure     *Failure

	// What follows is what is new; nil or false leaves what is stored.

	// Plan replaces the plan, and Pivot with it. It only ever extends the stored one.
	Plan  []string
	Pivot string
	// Steps replace the entries at their positions; a position just past the end appends.
	Steps []StepChange
	// Response is the run's result.
	Response json.RawMessage
	// DropCancel removes the cancel request.
	DropCancel bool
	// Messages are appended to the outbox; their bodies are []byte.
	Messages []outbox.Message
	// Claim puts the outbox under a relay's claim. It is a part of the fence: the write is refused when another claim is
	// live at UpdatedAt (the writer then sends it again without a claim), so that two relays never hold one message.
	Claim *Claim
	// Audit is appended to the audit.
	Audit []AuditEntry
}

// StepChange is the new entry of the step at Index.
type StepChange struct {
	// Index is the step's position in the plan.
	Index int
	// StepRecord is its whole entry.
	StepRecord
}

// Apply makes the change to r, which is left as it was when an error is returned: a [*ConflictError] when the fence does
// not hold, or an error of class [ErrTransition] when the record could never become that. Times are put at the grain in
// which records keep them. Nothing of the change is shared with r afterwards.
func (c *Change) Apply(r *Record) error {
	if err := c.Check(r); err != nil {
		return err
	}
	r.Owner, r.Runs, r.WriteID = c.Owner, c.Runs, c.WriteID
	r.Status, r.EndsAs, r.CurrentStep = c.Status, c.EndsAs, c.CurrentStep
	r.LeaseUntil, r.NotBefore, r.UpdatedAt = Milli(c.LeaseUntil), Milli(c.NotBefore), Milli(c.UpdatedAt)
	r.ExpiresAt = CeilSecond(c.ExpiresAt)
	r.Failure = c.Failure.clone().round()
	r.Revision++
	if c.Plan != nil {
		r.Plan, r.Pivot = slices.Clone(c.Plan), c.Pivot
	}
	for _, s := range c.Steps {
		if s.Index == len(r.Steps) {
			r.Steps = append(r.Steps, StepRecord{})
		}
		r.Steps[s.Index] = s.StepRecord.clone()
		r.Steps[s.Index].round()
	}
	if c.Response != nil {
		r.Response = slices.Clone(c.Response)
	}
	if c.DropCancel {
		r.Cancel = nil
	}
	for _, m := range c.Messages {
		m = CloneMessage(m)
		m.Time = Milli(m.Time)
		r.Outbox.Messages = append(r.Outbox.Messages, OutboxMessage{Message: m})
	}
	if c.Claim != nil {
		r.Outbox.Token, r.Outbox.ClaimedUntil = c.Claim.Token, Milli(c.Claim.Until)
	}
	for _, a := range c.Audit {
		a.At = Milli(a.At)
		r.Audit = append(r.Audit, a)
	}
	return nil
}

// Check tells whether the change may be made to r: nil, a [*ConflictError] that carries a copy of r, or a defect.
func (c *Change) Check(r *Record) error {
	claimed := c.Claim != nil && r.Outbox.Token != "" && r.Outbox.ClaimedUntil.After(c.UpdatedAt)
	if r.Key != c.Key || r.Owner != c.IfOwner || r.Revision != c.IfRevision || c.IfNoCancel && r.Cancel != nil || claimed {
		return &ConflictError{Key: c.Key, Current: r.Clone()}
	}
	if !c.ExpiresAt.IsZero() && len(r.Outbox.Messages)+len(c.Messages) > 0 {
		return fmt.Errorf("run %s: state: %w: an expiry with unsent messages", c.Key, ErrTransition)
	}
	return c.check(r.Status, len(r.Steps))
}

func (c *Change) check(from Status, steps int) error {
	if err := checkTransition(from, c.Status); err != nil {
		return fmt.Errorf("run %s: %w", c.Key, err)
	}
	if !c.Status.Ended() && !c.ExpiresAt.IsZero() {
		return fmt.Errorf("run %s: state: %w: %s with an expiry", c.Key, ErrTransition, c.Status)
	}
	for _, s := range c.Steps {
		if s.Index < 0 || s.Index > steps {
			return fmt.Errorf("run %s: state: %w: step %d of %d", c.Key, ErrTransition, s.Index, steps)
		}
		if s.Index == steps {
			steps++
		}
	}
	return nil
}

package state

import (
	"encoding/json"
	"slices"
	"time"
)

// RecordVersion is the version of the stored form of a record that this library writes. It reads this and every older
// one, and refuses a newer one.
const RecordVersion = 1

// Record is what is kept of a run. Stores keep times to the millisecond (ExpiresAt to the second) and drop the time zone.
type Record struct {
	// Key is the encoded key; see [Key.Encode].
	Key string
	// Operation is the saga's name.
	Operation string
	// Version is the definition's version that started the run.
	Version int
	// Plan is the ordered names of the steps.
	Plan []string
	// Pivot is the name of the pivot step, or empty.
	Pivot string
	// Retention is how long the record is kept after its end, in whole seconds. 0: for ever.
	Retention time.Duration
	// Status is where the run stands.
	Status Status
	// EndsAs is FAILED or REVERSED once the run goes backwards, and stays as the reason; before that it is empty.
	EndsAs Status
	// CurrentStep is the step to be run or undone next; empty when there is none, or when it is still open whether that step is
	// to be run at all.
	CurrentStep string
	// Steps has one entry per step of the plan, in its order.
	Steps []StepRecord
	// PayloadHash is "<algorithm version>:<digest>" of the input; see [PayloadHash].
	PayloadHash string
	// Input is the run's input as JSON.
	Input json.RawMessage
	// Response is the run's result as JSON, once it is completed.
	Response json.RawMessage
	// Failure says why a run goes or went backwards, or is blocked; nil otherwise.
	Failure *Failure
	// Owner is random per take-up; empty when the run has been laid down.
	Owner string
	// WriteID is random per logical write of a holder: by it a writer whose answer was lost knows its own write.
	WriteID string
	// Runs is how often the run was taken up, the first time included.
	Runs int
	// LeaseUntil is the end of the holder's lease; zero when the run has been laid down.
	LeaseUntil time.Time
	// NotBefore is when a step that returned RetryAfter may be tried again, by whomever; zero: at once.
	NotBefore time.Time
	// Cancel is the request to undo the run, if there is one.
	Cancel *CancelRequest
	// ExpiresAt is when the record counts as gone; only on ended records without unsent messages.
	ExpiresAt time.Time
	// Revision is raised by every fenced write; 1 after Create.
	Revision int64
	// CreatedAt is when the run started.
	CreatedAt time.Time
	// UpdatedAt is when the last fenced write was made.
	UpdatedAt time.Time
	// Outbox holds the messages that have not been sent.
	Outbox Outbox
	// Audit is what people did to the run, and what the library decided against a person's request.
	Audit []AuditEntry
}

// StepRecord is what is kept of a step.
type StepRecord struct {
	// Name of the step.
	Name string
	// Status is where it stands.
	Status StepStatus
	// Attempts is how many calls of its function there were over all runs; after a crash it may be one too high.
	Attempts int
	// Unknown: an attempt ended in a way that leaves open whether it took effect.
	Unknown bool
	// Output is the recorded result as JSON ("null" for a step without a result); nil when none is recorded.
	Output json.RawMessage
	// Error is how the last attempt failed; nil once the step is done.
	Error *Failure
	// UndoAttempts is how many calls of its compensation there were since it was last blocked. After a crash it may be one too
	// high.
	UndoAttempts int
	// UndoError is how the last of them failed; nil once the step is undone.
	UndoError *Failure
	// StartedAt is no later than the first call of its function; zero if that is not known to have been made.
	StartedAt time.Time
	// EndedAt is when it became DONE, SKIPPED or COMPENSATED.
	EndedAt time.Time
}

// MayHaveHappened tells whether the step's effect stands or may stand: done, marked as started, or unknown, and not undone.
func (s StepRecord) MayHaveHappened() bool {
	switch s.Status {
	case StepDone, StepStarted, StepCompensating:
		return true
	case StepPending:
		return s.Unknown
	}
	return false
}

// MaxMessage is the length in bytes at which stored failure messages are cut.
const MaxMessage = 256

// Failure is an error in its stored form.
type Failure struct {
	// Step that failed, or at which the run was when its deadline passed; empty when there is none, as after a cancel.
	Step string
	// Code that the step gave the error, or one of the library's.
	Code string
	// Message of the error, at most [MaxMessage] bytes.
	Message string
	// NotUndone are the steps whose effect stands, or may stand, and that have no compensation.
	NotUndone []string
	// At is when it happened.
	At time.Time
}

// CancelRequest is the durable request to undo a run.
type CancelRequest struct {
	// Reason is the person's own words.
	Reason string
	// Actor is who asked; see [ActorContext].
	Actor string
	// At is when.
	At time.Time
}

// AuditEntry is one line of a run's history of interventions.
type AuditEntry struct {
	// At is when.
	At time.Time
	// Actor is who; "tsuzuki" for the library itself.
	Actor string
	// Verb is what was done: "retry", "mark_done", "mark_compensated", "force_compensate", "reverse", "cancel_dropped",
	// "unpark_resend" or "unpark_drop".
	Verb string
	// Step that it was done to, or a message's ID; may be empty.
	Step string
	// Note is the person's own words.
	Note string
}

// Step returns the entry of the named step.
func (r *Record) Step(name string) (StepRecord, bool) {
	if i := r.StepIndex(name); i >= 0 {
		return r.Steps[i], true
	}
	return StepRecord{}, false
}

// StepIndex is the position of the named step, or -1.
func (r *Record) StepIndex(name string) int {
	return slices.IndexFunc(r.Steps, func(s StepRecord) bool { return s.Name == name })
}

// Done tells whether the named step is recorded as DONE.
func (r *Record) Done(name string) bool {
	s, ok := r.Step(name)
	return ok && s.Status == StepDone
}

// BlockedBy is what blocks the run: going backwards, how the compensation at hand failed, and otherwise the run's own failure.
// Nil when it is not blocked.
func (r *Record) BlockedBy() *Failure {
	if r.Status != StatusBlocked {
		return nil
	}
	s, _ := r.Step(r.CurrentStep)
	if r.EndsAs == "" || s.UndoError == nil {
		return r.Failure
	}
	f := *s.UndoError
	if r.Failure != nil {
		f.NotUndone = r.Failure.NotUndone
	}
	return &f
}

// PartialSuccess tells whether the run has not ended and at least one step is DONE.
func (r *Record) PartialSuccess() bool {
	return !r.Status.Ended() && slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return s.Status == StepDone })
}

// Next is the position of the first step that is neither DONE nor SKIPPED, or len(r.Steps).
func (r *Record) Next() int {
	for i, s := range r.Steps {
		if !s.Status.Finished() {
			return i
		}
	}
	return len(r.Steps)
}

// Open tells whether the record belongs in the index of open runs: not ended, or with unsent messages.
func (r *Record) Open() bool {
	return !r.Status.Ended() || len(r.Outbox.Messages) > 0
}

// Expired tells whether the record counts as gone at now.
func (r *Record) Expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// LeaseLive tells whether a holder's lease is running at now.
func (r *Record) LeaseLive(now time.Time) bool {
	return r.LeaseUntil.After(now)
}

// Expiry is when a record that ends at now is to expire: zero when it is kept for ever, or still has messages to send.
func (r *Record) Expiry(now time.Time) time.Time {
	if r.Retention <= 0 || len(r.Outbox.Messages) > 0 {
		return time.Time{}
	}
	return CeilSecond(now.Add(r.Retention))
}

// CeilSecond is t, up to the next whole second: the grain of ExpiresAt.
func CeilSecond(t time.Time) time.Time {
	return t.Add(time.Second - 1).Truncate(time.Second).UTC()
}

// Milli is t to the millisecond and in UTC: the grain in which records keep time.
func Milli(t time.Time) time.Time {
	return time.UnixMilli(t.UnixMilli()).UTC()
}

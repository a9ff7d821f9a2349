package state

import (
	"context"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Store keeps records. docs/writing-a-store.md says how to write one, and package statetest checks it. All methods may be
// called concurrently, also by several processes on one store.
//
// An error other than those named at a method leaves open whether the write was made. The caller then sends the same
// write again (same WriteID) or reads.
type Store interface {
	outbox.Source

	// Capabilities never change during the life of a store.
	Capabilities() Capabilities

	// Create stores rec if its key is not taken; a record that is expired at rec.CreatedAt or at the store's own time
	// does not count. existing is the record that has the key, for the caller to keep, and then nothing was written; when
	// it carries rec.WriteID, it is this very write, made before. [ErrTooLarge]: nothing was written.
	// The store keeps nothing of rec.
	Create(ctx context.Context, rec *Record) (existing *Record, err error)

	// Commit makes the change. A [*ConflictError] (Is ErrConflict) means that the fence did not hold, and carries the
	// record as it is, which may be the result of this very write (same WriteID) when it was sent before. [ErrTooLarge]:
	// nothing was written; a change without a payload ([Change.Payload]) is never too large. The store keeps nothing of ch.
	Commit(ctx context.Context, ch *Change) error

	// RequestCancel stores the request, unless there is one, which then stays and nil is returned. It touches neither
	// owner nor revision nor write ID. On a run that goes backwards already it does nothing and returns nil.
	// [ErrNotAllowed], checked in the write itself: the pivot is DONE, or the run is BLOCKED or has ended.
	// [ErrNotFound]: no such run.
	RequestCancel(ctx context.Context, key string, req CancelRequest) error

	// Get returns the record, for the caller to keep, or [ErrNotFound]. It sees every write that was answered before.
	Get(ctx context.Context, key string) (*Record, error)

	// List returns a page of records. Every record that matches during the whole of the paging is seen at least once.
	// [ErrUnsupported] when ended runs are asked for and Capabilities.ListEnded is false.
	List(ctx context.Context, q Query) (Page, error)

	// Delete removes the record and all that belongs to it, whatever its status; nil when there is none.
	Delete(ctx context.Context, key string) error
}

// Capabilities say what a store can do, as data, so that suites adapt instead of skipping.
type Capabilities struct {
	// MaxRecord is how many bytes the whole of a record may take, all payloads included, as the store counts them; 0: no
	// limit but that of MaxValue.
	MaxRecord int
	// MaxValue is how many bytes one payload (input, output of a step, result, body of a message) may take; 0: no limit
	// but that of MaxRecord.
	MaxValue int
	// ListEnded: List can list ended runs.
	ListEnded bool
	// Durable: what is committed survives the process.
	Durable bool
}

// Query selects records. Keyed literals only; the zero value selects every run that the store can list.
type Query struct {
	_ struct{}

	// Statuses to list. Empty: every status that the store can list.
	Statuses []Status
	// Operation to list. Empty: all.
	Operation string
	// LapsedBefore selects runs without a lease that is live at that time, those that were laid down included. Zero: all.
	LapsedBefore time.Time
	// Limit is the most records of a page. 0: 100.
	Limit int
	// Cursor is the Next of the page before. Empty: from the start.
	Cursor string
}

// DefaultPage is the Limit of a Query that names none.
const DefaultPage = 100

// Matches tells whether r is selected, its expiry left aside.
func (q Query) Matches(r *Record) bool {
	if len(q.Statuses) > 0 {
		found := false
		for _, s := range q.Statuses {
			found = found || s == r.Status
		}
		if !found {
			return false
		}
	}
	if q.Operation != "" && q.Operation != r.Operation {
		return false
	}
	return q.LapsedBefore.IsZero() || r.LeaseUntil.Before(q.LapsedBefore)
}

// Page is a part of a listing.
type Page struct {
	// Records of this page, for the caller to keep. There may be none although Next is set.
	Records []*Record
	// Next is the cursor of the next page; empty: this was the last.
	Next string
}

// CheckCancel is the rule of RequestCancel for a record in hand: store tells whether the request is to be stored, and err
// is [ErrNotAllowed] or nil.
func (r *Record) CheckCancel() (store bool, err error) {
	switch {
	case r.Status == StatusCompensating:
		return false, nil
	case r.Status != StatusInProgress && r.Status != StatusInterrupted:
		return false, ErrNotAllowed
	case r.Pivot != "" && r.Done(r.Pivot):
		return false, ErrNotAllowed
	}
	return r.Cancel == nil, nil
}

type actorKey struct{}

// ActorContext returns a context that names who acts, for audit lines.
func ActorContext(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, actorKey{}, who)
}

// Actor is who acts in this context; "unknown" when nobody was named.
func Actor(ctx context.Context) string {
	if who, ok := ctx.Value(actorKey{}).(string); ok && who != "" {
		return who
	}
	return "unknown"
}

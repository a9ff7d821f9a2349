// Package dispatch is what the publishers share: which target a topic goes to, how messages are put into requests so that
// a failure never lets a message overtake another of its lane, and how results are gathered.
package dispatch

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Entry is a message made ready to be sent.
type Entry[T any] struct {
	// ID of the message.
	ID string
	// Lane is within what the order is kept.
	Lane string
	// Size counts against the limit of a request.
	Size int
	// Err: the message can't be sent at all. It is refused in its turn.
	Err error
	// Payload is the publisher's own.
	Payload T
}

// Limits of one request.
type Limits struct {
	// Entries and Bytes are the most that a request may have.
	Entries, Bytes int
	// OnePerLane keeps two messages of a lane out of one request, for brokers that keep an order and answer per entry.
	OnePerLane bool
}

// Failure is why an entry or a request failed.
type Failure struct {
	// Err is the reason.
	Err error
	// Refused: trying again is no use.
	Refused bool
	// Target, of a request that was refused as a whole: the target takes nothing, whatever the entries are.
	Target bool
}

// Request sends one request. It returns a failure per entry, nil for those that were accepted, or the failure of the
// request as a whole.
type Request[T any] func(ctx context.Context, entries []Entry[T]) ([]*Failure, *Failure)

// Send sends the entries, one request after the other. A request that is refused as a whole is sent again entry by entry,
// so that one bad entry doesn't take the others with it, unless the target takes nothing at all. The error is that of a
// request that failed without being refused: what is left then is not tried.
func Send[T any](ctx context.Context, entries []Entry[T], limits Limits, request Request[T]) ([]outbox.Result, error) {
	s := sender[T]{left: entries, limits: limits, stopped: map[string]bool{}}
	for {
		batch := s.next()
		if len(batch) == 0 {
			return s.results, nil
		}
		failures, whole := request(ctx, batch)
		if whole != nil && whole.Refused && !whole.Target && len(batch) > 1 {
			var err error
			if failures, err = singly(ctx, batch, request); err != nil {
				s.note(batch[:len(failures)], failures)
				return s.results, err
			}
			whole = nil
		}
		switch {
		case whole == nil:
			s.note(batch, failures)
		case !whole.Refused:
			return s.results, whole.Err
		default:
			for range batch {
				failures = append(failures, whole)
			}
			s.note(batch, failures)
			if whole.Target {
				s.refuseAll(whole.Err)
			}
		}
	}
}

// singly sends each entry of a request that was refused in a request of its own. Entries behind a failed one of their
// lane are held back. It stops with an error; the failures are then those of the entries before.
func singly[T any](ctx context.Context, batch []Entry[T], request Request[T]) ([]*Failure, error) {
	failures := make([]*Failure, 0, len(batch))
	stopped := map[string]bool{}
	for _, e := range batch {
		if stopped[e.Lane] {
			failures = append(failures, &Failure{Err: outbox.ErrHeldBack})
			continue
		}
		one, whole := request(ctx, []Entry[T]{e})
		if whole == nil {
			whole = one[0]
		} else if !whole.Refused {
			return failures, whole.Err
		}
		stopped[e.Lane] = whole != nil
		failures = append(failures, whole)
	}
	return failures, nil
}

type sender[T any] struct {
	left    []Entry[T]
	limits  Limits
	stopped map[string]bool // lanes with a failure
	results []outbox.Result
}

// next takes the entries of the next request from what is left. Entries in stopped lanes, and those that can't be sent
// and whose turn it is, get their result.
func (s *sender[T]) next() []Entry[T] {
	var batch, left []Entry[T]
	size := 0
	inBatch, passed := map[string]bool{}, map[string]bool{}
	for _, e := range s.left {
		switch {
		case s.stopped[e.Lane]:
			s.fail(e, outbox.ErrHeldBack, false)
		case passed[e.Lane], inBatch[e.Lane] && (s.limits.OnePerLane || e.Err != nil):
			passed[e.Lane] = true
			left = append(left, e)
		case e.Err != nil:
			s.fail(e, e.Err, true)
		case len(batch) == s.limits.Entries, len(batch) > 0 && size+e.Size > s.limits.Bytes:
			passed[e.Lane] = true
			left = append(left, e)
		default:
			batch, inBatch[e.Lane] = append(batch, e), true
			size += e.Size
		}
	}
	s.left = left
	return batch
}

func (s *sender[T]) fail(e Entry[T], err error, refused bool) {
	s.stopped[e.Lane] = true
	s.results = append(s.results, outbox.Result{ID: e.ID, Err: err, Refused: refused})
}

// refuseAll gives what is left its result: the first of each lane is refused, as it would be if it were tried.
func (s *sender[T]) refuseAll(err error) {
	for _, e := range s.left {
		if s.stopped[e.Lane] {
			s.fail(e, outbox.ErrHeldBack, false)
		} else {
			s.fail(e, err, true)
		}
	}
	s.left = nil
}

func (s *sender[T]) note(batch []Entry[T], failures []*Failure) {
	for i, e := range batch {
		if f := failures[i]; f != nil {
			s.fail(e, f.Err, f.Refused)
			continue
		}
		s.results = append(s.results, outbox.Result{ID: e.ID})
	}
}

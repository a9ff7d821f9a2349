package outbox

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// hold is a batch that a relay has in hand. Only one goroutine uses it at a time.
type hold struct {
	batch Batch
	// until is the end of the lease, and readyAt the time before which nothing is tried, both on the monotonic clock.
	until   time.Duration
	readyAt time.Duration
	// pending are the messages that the broker has not accepted, in order; accepted are the IDs of those that it has and
	// that the source has not been told of.
	pending  []Message
	accepted []string
	// waits is nil until something has failed; tries counts the failures since the last success.
	waits *backoff.ExponentialBackOff
	tries int
}

func newHold(b Batch, until time.Duration) *hold {
	h := &hold{batch: b, until: until, pending: make([]Message, len(b.Messages))}
	copy(h.pending, b.Messages)
	for i := range h.pending {
		if h.pending[i].Key == "" {
			h.pending[i].Key = b.RunKey
		}
	}
	return h
}

// segment is what may be given to one Publish call: pending messages up to a change of topic or ordering key, since a
// publisher keeps the order within those alone.
func (h *hold) segment() []Message {
	n := 1
	for n < len(h.pending) && h.pending[n].Topic == h.pending[0].Topic && h.pending[n].Key == h.pending[0].Key {
		n++
	}
	return h.pending[:n]
}

// take notes the results for the first n pending messages, and returns the first that was not accepted.
func (h *hold) take(n int, results map[string]Result) (failed *Result) {
	left := make([]Message, 0, len(h.pending))
	for _, m := range h.pending[:n] {
		res, ok := results[m.ID]
		if ok && res.Err == nil && !res.Refused {
			h.accepted = append(h.accepted, m.ID)
			continue
		}
		left = append(left, m)
		if failed == nil {
			failed = &Result{ID: m.ID, Err: res.Err, Refused: res.Refused}
			switch {
			case !ok:
				failed.Err = errNoResult
			case res.Err == nil:
				failed.Err = errNoReason
			}
		}
	}
	h.pending = append(left, h.pending[n:]...)
	if failed == nil || len(left) < n {
		h.tries, h.waits = 0, nil
	}
	return failed
}

// wait is how long to leave the run alone after another failure.
func (h *hold) wait(c *config) time.Duration {
	if h.waits == nil {
		h.waits = c.newBackoff()
	}
	h.tries++
	return h.waits.NextBackOff()
}

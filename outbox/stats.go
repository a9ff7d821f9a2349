package outbox

import (
	"sync"
	"time"
)

// Stats is what a relay has done since it was made, and how it stands. Made for metrics: counters only grow.
type Stats struct {
	// Claimed counts messages taken from the source, again each time they are.
	Claimed uint64
	// Sent counts messages that the broker has accepted.
	Sent uint64
	// Refused counts refusals, several for one message.
	Refused uint64
	// Failed counts other failures of single messages.
	Failed uint64
	// Parked counts messages set aside after too many refusals. Those held back behind them are not counted.
	Parked uint64
	// Outages counts Publish calls that failed as a whole.
	Outages uint64
	// ClaimsLost counts leases that another relay took over before this one was done: lease conflicts.
	ClaimsLost uint64
	// LeasesSpent counts claims that were given up because their lease was nearly over.
	LeasesSpent uint64
	// SourceErrors counts failed calls of the source other than lost claims.
	SourceErrors uint64

	// InHand is how many messages are claimed and not yet accepted.
	InHand int
	// Down: the last Publish call failed as a whole.
	Down bool
	// Oldest is when the oldest due message was recorded that this relay knows of and has not sent; zero: none.
	Oldest time.Time
	// Lag is the age of that message; 0: none.
	Lag time.Duration
}

// Stats is a snapshot. It may be called at any time, and as often as metrics are read.
func (r *Relay) Stats() Stats {
	s := r.counts.snapshot()
	_, s.Down = r.gate.state()
	if !s.Oldest.IsZero() {
		s.Lag = max(r.cfg.clock.Now().Sub(s.Oldest), 0)
	}
	return s
}

type counts struct {
	mu    sync.Mutex
	stats Stats
	// hands are the holds in hand, with what they stood at when last looked at.
	hands map[*hold]inHand
	// dropped is the time of the oldest message that was given back unsent since the last look at the source.
	dropped time.Time
}

type inHand struct {
	messages int
	oldest   time.Time
}

func (c *counts) init() { c.hands = map[*hold]inHand{} }

func (c *counts) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

func (c *counts) claimed(holds ...*hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range holds {
		c.stats.Claimed += uint64(len(h.batch.Messages))
		c.hands[h] = h.standing()
	}
}

// looked forgets what was given back: a look at the source finds it again if it is due still.
func (c *counts) looked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = time.Time{}
}

func (c *counts) progress(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands[h] = h.standing()
}

func (c *counts) gone(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hands, h)
	if left := h.standing(); left.messages > 0 {
		c.dropped = older(c.dropped, left.oldest)
	}
}

func (c *counts) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Oldest = c.dropped
	for _, in := range c.hands {
		s.InHand += in.messages
		s.Oldest = older(s.Oldest, in.oldest)
	}
	return s
}

func (h *hold) standing() inHand {
	in := inHand{messages: len(h.pending)}
	for _, m := range h.pending {
		in.oldest = older(in.oldest, m.Time)
	}
	return in
}

// older is the earlier of two times, of which zero is none.
func older(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

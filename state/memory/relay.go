package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Claim hands out due messages, those of the runs that have waited longest first, and closes ended runs with nothing
// left to send; see [outbox.Source].
func (s *Store) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var batches []outbox.Batch
	left := limit
	kept := s.relay[:0]
	for _, e := range s.relay {
		if e.rec != nil {
			e.rec.Settle(now)
		}
		if !e.waits() {
			e.queued = false
			continue
		}
		kept = append(kept, e)
		due := e.rec.Outbox.Due(now)
		if len(due) > limit {
			due = due[:max(limit, 0)]
		}
		if len(due) == 0 || len(due) > left {
			continue
		}
		left -= len(due)
		e.rec.Outbox.Token, e.rec.Outbox.ClaimedUntil = rand.Text(), state.Milli(now.Add(lease))
		batches = append(batches, e.batch(due))
	}
	clear(s.relay[len(kept):])
	s.relay = kept
	return batches, nil
}

// batch is what the relay gets, sharing nothing with the record.
func (e *entry) batch(due []outbox.Message) outbox.Batch {
	for i := range due {
		due[i] = state.CloneMessage(due[i])
	}
	return outbox.Batch{RunKey: e.rec.Key, Token: e.rec.Outbox.Token, Messages: due}
}

// waits tells whether Claim has to look at the record: it has messages, or lacks its expiry.
func (e *entry) waits() bool {
	return e.rec != nil && (len(e.rec.Outbox.Messages) > 0 || e.rec.Status.Ended() && e.rec.ExpiresAt.IsZero() && e.rec.Retention > 0)
}

// enqueue puts the record before Claim if that has to look at it. Where no relay ever calls Claim, because messages are
// sent right after each run, it also forgets those that need it no more.
func (s *Store) enqueue(e *entry) {
	if e.queued || !e.waits() {
		return
	}
	if len(s.relay) >= s.relaySweepAt {
		s.relay = slices.DeleteFunc(s.relay, func(e *entry) bool {
			e.queued = e.waits()
			return !e.queued
		})
		s.relaySweepAt = max(minSweep, 2*len(s.relay))
	}
	e.queued = true
	s.relay = append(s.relay, e)
}

// Sent removes messages that have been sent; see [outbox.Source].
func (s *Store) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	return s.claimed(ctx, b, func(o *state.Outbox) error { return o.Sent(b, ids) })
}

// Park sets a message aside; see [outbox.Source].
func (s *Store) Park(ctx context.Context, b outbox.Batch, id, reason string) error {
	return s.claimed(ctx, b, func(o *state.Outbox) error { return o.Park(b, id, reason) })
}

func (s *Store) claimed(ctx context.Context, b outbox.Batch, do func(*state.Outbox) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.live(b.RunKey)
	if e == nil {
		return fmt.Errorf("memory: run %s: the record is gone: %w", b.RunKey, outbox.ErrClaimLost)
	}
	if err := do(&e.rec.Outbox); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	e.rec.Settle(s.clock.Now())
	return nil
}

// Parked lists parked messages by the age of their runs. A page holds all those of a run, and so may be somewhat longer
// than [state.DefaultPage].
func (s *Store) Parked(ctx context.Context, from string) (msgs []outbox.Message, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	after, err := position(from)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.behind(after) {
		if e.rec == nil {
			continue
		}
		parked := e.parked()
		if len(parked) > 0 && len(msgs) >= state.DefaultPage {
			return msgs, cursor(after), nil
		}
		msgs, after = append(msgs, parked...), e.seq
	}
	return msgs, "", nil
}

func (e *entry) parked() (msgs []outbox.Message) {
	for _, m := range e.rec.Outbox.Messages {
		if m.Parked != "" {
			msgs = append(msgs, state.CloneMessage(m.Message))
		}
	}
	return msgs
}

// Unpark ends the parking of a message; see [outbox.Source].
func (s *Store) Unpark(ctx context.Context, id string, resend bool, note string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, _ := state.MessageRun(id)
	e := s.live(key)
	if e == nil {
		return fmt.Errorf("memory: message %s: %w", id, outbox.ErrNotParked)
	}
	if err := e.rec.Outbox.Unpark(id, resend); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	now := s.clock.Now()
	e.rec.Audit = append(e.rec.Audit, state.UnparkAudit(state.Actor(ctx), id, resend, note, now))
	e.rec.Settle(now)
	return nil
}

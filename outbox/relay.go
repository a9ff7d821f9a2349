package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
)

// Relay takes due messages from a source, gives them to a publisher in order per run, and tells the source which were
// accepted. Its methods may be called concurrently; several relays, in several processes, may serve one source.
//
// A run's messages are sent in the order of their emission. One that is refused too often is parked together with those
// behind it, and other runs go on. An outage of the broker counts against no message: everything waits, for a growing
// time. No message is given to the publisher once the lease of its claim is over by the relay's own monotonic clock, and
// a call under way is cancelled shortly before.
type Relay struct {
	source    Source
	publisher Publisher
	cfg       config
	gate      gate
	counts    counts
	refusals  refusals
}

// NewRelay makes a relay. The publisher has to bear as many concurrent calls as there are workers.
func NewRelay(source Source, publisher Publisher, opts ...Option) (*Relay, error) {
	if source == nil || publisher == nil {
		return nil, errors.New("outbox: a relay needs a source and a publisher")
	}
	cfg := defaults()
	for _, o := range opts {
		if o != nil {
			o.apply(&cfg)
		}
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &Relay{source: source, publisher: publisher, cfg: cfg}
	r.gate.waits = cfg.newBackoff()
	r.counts.init()
	r.refusals.init()
	return r, nil
}

// Lease is for how long the relay claims a run's messages. The closing write of a run that is to be delivered inline
// claims them for as long.
func (r *Relay) Lease() time.Duration { return r.cfg.lease }

// Run relays messages until ctx ends. It then finishes what it has in hand, for at most the grace, gives back what it
// could not finish, and returns nil. An outage of the broker or of the source doesn't end it: both are logged, counted
// and waited for.
func (r *Relay) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unhook := context.AfterFunc(ctx, func() {
		r.cfg.logger.Info("relay_stopping")
		defer cancel()
		_ = r.cfg.clock.Sleep(work, r.cfg.grace) // ends early when Run returns
	})
	defer unhook()
	r.cfg.logger.Info("relay_started")
	s := newSession(r, false)
	s.loop(ctx, work)
	return s.close(work)
}

// Drain relays until nothing is due that this relay can send, and returns. Messages that another relay has claimed, and
// parked ones, are left alone. The error is of class [ErrOutage] when the broker was down, three times in a row or until
// the lease ended, and of class [ErrUnsent] when some messages failed three times in a row; otherwise it is the source's,
// or that of ctx. Whatever was not sent stays due. Where ctx has a deadline, nothing more is claimed in the second before it.
func (r *Relay) Drain(ctx context.Context) error {
	claims := ctx
	if at, ok := ctx.Deadline(); ok {
		left := at.Sub(r.cfg.clock.Now())
		var cancel context.CancelFunc
		claims, cancel = r.cfg.clock.WithTimeout(ctx, left-min(time.Second, left/4))
		defer cancel()
	}
	s := newSession(r, true)
	done := s.loop(claims, ctx)
	err := s.close(ctx)
	if !done {
		return errors.Join(fmt.Errorf("outbox: drain: stopped before the end: %w", context.Cause(claims)), err)
	}
	return err
}

// Deliver sends the messages of one run that the caller has claimed, as the closing write of the run does: b.Messages are
// those that [Source.Claim] would have handed out, b.Token is the claim's, and left is how much of its lease is left by
// the caller's monotonic clock. It makes one attempt, for at most the inline timeout, and stops when ctx ends. What was accepted is
// removed from the source; what was not is released, so that a loop or a Drain sends it, or parked if it was refused too
// often. An error, of class [ErrOutage] or [ErrUnsent], is for the log: the messages are safe. In an outage that is
// known already the broker isn't asked.
func (r *Relay) Deliver(ctx context.Context, b Batch, left time.Duration) error {
	if len(b.Messages) == 0 {
		return nil
	}
	now := r.cfg.clock.Mono()
	h := newHold(b, now+min(left, r.cfg.lease))
	r.counts.claimed(h)
	defer r.counts.gone(h)
	if until, _ := r.gate.state(); until > now {
		_ = r.release(ctx, h) // else it lapses
		return fmt.Errorf("%w: run %s: an outage was seen before", ErrOutage, b.RunKey)
	}
	for {
		o := r.attempt(ctx, []*hold{h}, now+r.cfg.inline-r.cfg.clock.Mono())[0]
		switch o.standing {
		case goesOn:
			continue
		case finished:
			return r.flush(ctx, h)
		case refused:
			r.refuse(ctx, h, o)
		default:
			_ = r.release(ctx, h)
		}
		return o.asError()
	}
}

// refuse parks the message if that was its last chance, or else releases the run.
func (r *Relay) refuse(ctx context.Context, h *hold, o outcome) {
	if r.refusals.add(o.id) >= r.cfg.maxRefusals {
		_ = r.park(ctx, h, o)
		return
	}
	_ = r.release(ctx, h)
}

// refusals counts refusals per message, for as long as the relay lives. Parked and sent messages are forgotten.
type refusals struct {
	mu sync.Mutex
	n  map[string]int
}

// mostRefusals bounds the memory. Runs that are refused, lapse and are then sent by another relay leave their counts
// behind; forgetting all counts costs a few more attempts.
const mostRefusals = 10_000

func (f *refusals) init() { f.n = map[string]int{} }

func (f *refusals) add(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.n) >= mostRefusals && f.n[id] == 0 {
		clear(f.n)
	}
	f.n[id]++
	return f.n[id]
}

func (f *refusals) forget(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.n) == 0 {
		return
	}
	for _, id := range ids {
		delete(f.n, id)
	}
}

// flush tells the source what was accepted.
func (r *Relay) flush(ctx context.Context, h *hold) error {
	if len(h.accepted) == 0 {
		return nil
	}
	err := r.write(ctx, h, "remove sent messages", func(ctx context.Context) error {
		return r.source.Sent(ctx, h.batch, h.accepted)
	})
	if err == nil {
		h.accepted = nil
	}
	return err
}

// release tells the source what was accepted, and gives the rest back.
func (r *Relay) release(ctx context.Context, h *hold) error {
	if err := r.flush(ctx, h); err != nil || len(h.pending) == 0 {
		return err
	}
	return r.write(ctx, h, "release a claim", func(ctx context.Context) error {
		return r.source.Sent(ctx, h.batch, nil)
	})
}

// park tells the source what was accepted, and sets the refused message aside.
func (r *Relay) park(ctx context.Context, h *hold, o outcome) error {
	if err := r.flush(ctx, h); errors.Is(err, ErrClaimLost) {
		return err
	}
	err := r.write(ctx, h, "park a message", func(ctx context.Context) error {
		return r.source.Park(ctx, h.batch, o.id, o.err.Error())
	})
	if err == nil {
		h.pending = nil // none of it is due any more
		r.refusals.forget(o.id)
		r.counts.add(func(s *Stats) { s.Parked++ })
		r.cfg.logger.Error("message_parked", zap.String("key", h.batch.RunKey), zap.String("message", o.id), zap.Error(o.err),
			zap.String("hint", "the broker refuses it; it and what the run emitted after it wait for Unpark, which sends it again or drops it"))
	}
	return err
}

// writeTime bounds the tries at one write to the source.
const writeTime = 5 * time.Second

// write makes a write to the source, again while it fails without saying that the claim is lost. It is tried even after
// the caller's context has ended, though once only: what was published should be known as published.
func (r *Relay) write(caller context.Context, h *hold, what string, f func(context.Context) error) error {
	ctx, cancel := r.cfg.clock.WithTimeout(context.WithoutCancel(caller), writeTime)
	defer cancel()
	var waits *backoff.ExponentialBackOff
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrClaimLost) {
			r.claimLost(h, what, waits != nil)
			return err
		}
		r.counts.add(func(s *Stats) { s.SourceErrors++ })
		if waits == nil {
			waits = r.cfg.newBackoff()
		}
		if caller.Err() != nil || r.cfg.clock.Sleep(ctx, waits.NextBackOff()) != nil {
			r.cfg.logger.Warn("source_failed", zap.String("key", h.batch.RunKey), zap.String("doing", what), zap.Error(err),
				zap.String("hint", "messages may be sent twice"))
			return fmt.Errorf("outbox: %s of run %s: %w", what, h.batch.RunKey, err)
		}
	}
}

// claimLost notes a lost claim, unless an earlier try at the same write may have released it.
func (r *Relay) claimLost(h *hold, what string, triedBefore bool) {
	if triedBefore {
		return
	}
	r.counts.add(func(s *Stats) { s.ClaimsLost++ })
	r.cfg.logger.Warn("claim_lost", zap.String("key", h.batch.RunKey), zap.String("doing", what),
		zap.String("hint", "another relay has taken the run over; messages may be sent twice"))
}

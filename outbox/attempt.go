package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"go.uber.org/zap"
)

// standing is where a hold stands after an attempt.
type standing int

const (
	goesOn   standing = iota // more messages to send
	finished                 // all accepted
	down                     // the broker as a whole is not taking messages
	refused                  // the broker refuses a message
	failed                   // a message failed in another way
	spent                    // too little of the lease is left to try
	cut                      // the context has ended
)

type outcome struct {
	h        *hold
	standing standing
	id       string // of the message that was refused or has failed
	err      error
}

// asError is what a caller is told who asked for this one run.
func (o outcome) asError() error {
	switch o.standing {
	case down:
		return fmt.Errorf("%w: run %s: %w", ErrOutage, o.h.batch.RunKey, o.err)
	case refused, failed:
		return fmt.Errorf("%w: message %s: %w", ErrUnsent, o.id, o.err)
	case spent:
		return fmt.Errorf("%w: run %s: the claim is nearly over", ErrUnsent, o.h.batch.RunKey)
	case cut:
		return fmt.Errorf("%w: run %s: %w", ErrUnsent, o.h.batch.RunKey, o.err)
	}
	return nil
}

var (
	errNoResult = errors.New("the publisher gave no result with the message's ID")
	errNoReason = errors.New("the publisher gave no reason")
)

// attempt gives the next messages of every hold to the publisher in one call, and says how each hold stands then. It
// writes nothing. The call may take as long as the leases allow, and no longer than most.
func (r *Relay) attempt(ctx context.Context, holds []*hold, most time.Duration) []outcome {
	out := make([]outcome, len(holds))
	var msgs []Message
	counts := make([]int, len(holds))
	now, least := r.cfg.clock.Mono(), r.cfg.lease
	for i, h := range holds {
		out[i] = outcome{h: h, standing: finished}
		switch left := h.until - now; {
		case len(h.pending) == 0:
		case ctx.Err() != nil:
			out[i].standing, out[i].err = cut, context.Cause(ctx)
		case left < r.cfg.lease/4:
			out[i].standing = spent
			r.counts.add(func(s *Stats) { s.LeasesSpent++ })
		default:
			least = min(least, left)
			segment := h.segment()
			counts[i] = len(segment)
			msgs = append(msgs, segment...)
		}
	}
	if len(msgs) == 0 {
		return out
	}
	epoch := r.gate.epoch()
	// The rest of the lease is for telling the source.
	pctx, cancel := r.cfg.clock.WithTimeout(ctx, min(most, least-r.cfg.lease/10))
	results, err := r.publish(pctx, msgs)
	cancel()
	byID := make(map[string]Result, len(results))
	for _, res := range results {
		byID[res.ID] = res
	}
	r.note(ctx, epoch, err)
	blamed := err != nil || anyFailure(results)
	for i, h := range holds {
		if counts[i] == 0 {
			continue
		}
		before := len(h.accepted)
		bad := h.take(counts[i], byID)
		r.accepted(h.accepted[before:])
		out[i].judge(ctx, bad, err, blamed)
		if out[i].standing == refused || out[i].standing == failed {
			r.failedOne(out[i])
		}
	}
	return out
}

// judge says how the hold stands: bad is its first message that was not accepted, err the error of the whole call, and
// blamed tells whether the call had a failure that could hold a message of another run back.
func (o *outcome) judge(ctx context.Context, bad *Result, err error, blamed bool) {
	switch {
	case bad == nil && len(o.h.pending) == 0:
		o.standing = finished
	case bad == nil:
		o.standing = goesOn
	case bad.Refused:
		o.standing, o.id, o.err = refused, bad.ID, bad.Err
	case ctx.Err() != nil:
		o.standing, o.err = cut, context.Cause(ctx)
	case err != nil:
		o.standing, o.err = down, err
	case errors.Is(bad.Err, ErrHeldBack) && blamed:
		o.standing = goesOn // behind another run's message; its own turn comes without that one
	default:
		o.standing, o.id, o.err = failed, bad.ID, bad.Err
	}
}

func anyFailure(results []Result) bool {
	for _, res := range results {
		if (res.Err != nil || res.Refused) && !errors.Is(res.Err, ErrHeldBack) {
			return true
		}
	}
	return false
}

// publish calls the publisher; a panic there is an error of the whole call.
func (r *Relay) publish(ctx context.Context, msgs []Message) (results []Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.logger.Error("publisher_panic", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			results, err = nil, fmt.Errorf("outbox: the publisher panics: %v", p)
		}
	}()
	results, err = r.publisher.Publish(ctx, msgs)
	results = slices.Clone(results)
	for i := range results {
		results[i].Err = sound(results[i].Err)
	}
	return results, sound(err)
}

// sound is a publisher's error, or what stands for it when its methods panic, as those of a typed nil do: they are called
// in places where that would end the process.
func sound(err error) (out error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			out = fmt.Errorf("outbox: the publisher's error, of type %T, panics when it is looked at", err)
		}
	}()
	_, _, _ = err.Error(), errors.Is(err, ErrHeldBack), retryAfter(err)
	return err
}

// note tells the gate how a call went. A call that the caller cut short says nothing about the broker; one that ran out
// of its lease does.
func (r *Relay) note(ctx context.Context, epoch int, err error) {
	now := r.cfg.clock.Mono()
	switch {
	case err == nil:
		if lasted := r.gate.open(now); lasted > 0 {
			r.cfg.logger.Info("broker_up", zap.Duration("outage", lasted))
		}
	case ctx.Err() != nil:
	default:
		r.counts.add(func(s *Stats) { s.Outages++ })
		if r.gate.fail(epoch, now, retryAfter(err)) {
			r.cfg.logger.Warn("broker_down", zap.Error(err))
		}
	}
}

func (r *Relay) accepted(ids []string) {
	if len(ids) == 0 {
		return
	}
	r.refusals.forget(ids...)
	r.counts.add(func(s *Stats) { s.Sent += uint64(len(ids)) })
}

func (r *Relay) failedOne(o outcome) {
	said := "message_failed"
	r.counts.add(func(s *Stats) {
		if o.standing == refused {
			s.Refused++
		} else {
			s.Failed++
		}
	})
	if o.standing == refused {
		said = "message_refused"
	}
	r.cfg.logger.Warn(said, zap.String("key", o.h.batch.RunKey), zap.String("message", o.id), zap.Error(o.err))
}

// mostAsked is the longest wait that a broker can ask for.
const mostAsked = time.Hour

// retryAfter is the wait that an error asks for.
func retryAfter(err error) time.Duration {
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		return min(asks.RetryAfter(), mostAsked)
	}
	return 0
}

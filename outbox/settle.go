package outbox

import (
	"context"
	"errors"
	"sync"
)

// settle writes what came of a hold, and either is done with it or puts it aside for a while.
func (s *session) settle(ctx context.Context, o outcome) {
	if s.isMuted() {
		s.r.counts.gone(o.h)
		return
	}
	err := s.write(ctx, o)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrClaimLost) {
		s.mute()
	}
	waits := o.standing == down || o.standing == refused || o.standing == failed
	if waits && len(o.h.pending) > 0 && !errors.Is(err, ErrClaimLost) {
		s.hold(o)
		return
	}
	s.r.counts.gone(o.h)
}

func (s *session) write(ctx context.Context, o outcome) error {
	r := s.r
	switch {
	case o.standing == spent || o.standing == cut:
		return r.release(ctx, o.h)
	case o.standing == refused && r.refusals.add(o.id) >= r.cfg.maxRefusals:
		return r.park(ctx, o.h, o)
	}
	return r.flush(ctx, o.h)
}

func (s *session) isMuted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.muted
}

func (s *session) mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = true
}

// hold puts a run aside until it may be tried again. One that can't be tried again within its lease is let go without a
// write: the lease is its wait.
func (s *session) hold(o outcome) {
	r, h := s.r, o.h
	now := r.cfg.clock.Mono()
	if o.standing == down {
		h.readyAt, _ = r.gate.state()
	} else {
		h.readyAt = now + max(h.wait(&r.cfg), retryAfter(o.err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tooLate := h.readyAt+r.cfg.lease/4 > h.until
	switch {
	case s.once && (tooLate || o.standing == failed && h.tries >= drainTries):
		s.stuck = append(s.stuck, h)
		if s.stuckErr == nil && o.standing != down { // an outage is told of once
			s.stuckErr = o.asError()
		}
	case tooLate || s.heldMessages() > mostHeld*r.cfg.batch:
		r.counts.gone(h)
	default:
		s.held = append(s.held, h)
		s.nudge()
	}
}

func (s *session) heldMessages() int {
	n := 0
	for _, h := range s.held {
		n += len(h.pending)
	}
	return n
}

// close waits for the workers and gives back what waits. The error says why a session that ends by itself left something
// unsent.
func (s *session) close(work context.Context) error {
	s.workers.Wait()
	ended, cancel := context.WithCancel(work)
	cancel() // one try each is enough
	each(append(s.held, s.stuck...), func(h *hold) {
		s.settle(ended, outcome{h: h, standing: cut})
	})
	if !s.once {
		return nil
	}
	var outage error
	if s.outages > 0 {
		outage = s.outage
	}
	return errors.Join(outage, s.stuckErr, s.source)
}

// each calls f for all items, a few at a time.
func each[T any](items []T, f func(T)) {
	if len(items) == 1 {
		f(items[0])
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelWrites)
	for _, it := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(it)
		})
	}
	wg.Wait()
}

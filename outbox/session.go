package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// session is one Run or Drain. One goroutine, in loop, claims; workers publish and write what came of it.
type session struct {
	r *Relay
	// once: end when nothing is due, instead of waiting for more.
	once bool

	workers sync.WaitGroup
	// slots are taken while publishing. One worker more than there are slots is started, so that its messages are in hand
	// when a slot gets free.
	slots chan struct{}
	// wake tells the loop that something has changed: a worker is done, a hold waits for its time.
	wake chan struct{}

	// Only the loop uses these.
	claimAt    time.Duration // no look at the source before
	poll       time.Duration
	errorWaits *backoff.ExponentialBackOff

	mu         sync.Mutex
	busy       int     // workers that publish, or write what came of it
	publishing int     // those of them that publish, or wait for a slot
	held       []*hold // waiting for their time
	// Of a session that is to end by itself:
	stuck    []*hold // given up on; released at the end, so that they are not claimed over and over
	stuckErr error   // why, of the first
	outages  int     // in a row
	outage   error
	source   error
	// muted: the context of the work is over and the source fails. Nothing more is written, so that the end isn't waited
	// for once per run; claims lapse, and messages may be sent twice.
	muted bool
}

// Limits on what a session does.
const (
	// drainTries is how often Drain tries a message, or a broker that is down, before it gives up.
	drainTries = 3
	// parallelWrites is how many writes to the source a worker makes at a time.
	parallelWrites = 16
	// mostHeld is how many batches' worth of messages may wait for their time in memory. What is more is left to lapse.
	mostHeld = 10
)

func newSession(r *Relay, once bool) *session {
	return &session{r: r, once: once, wake: make(chan struct{}, 1), slots: make(chan struct{}, r.cfg.workers), poll: r.cfg.pollMin, errorWaits: r.cfg.newBackoff()}
}

// loop hands out work until ctx ends (false), or, in a session that ends by itself, until there is none (true). The work
// is done under the context work.
func (s *session) loop(ctx, work context.Context) bool {
	for ctx.Err() == nil {
		holds, wait, done := s.next(work)
		if done {
			return true
		}
		if len(holds) > 0 {
			s.start(work, holds)
			continue
		}
		s.pause(ctx, wait)
	}
	return false
}

// start gives the holds to a worker.
func (s *session) start(work context.Context, holds []*hold) {
	s.mu.Lock()
	s.busy++
	s.publishing++
	s.mu.Unlock()
	s.workers.Go(func() {
		s.work(work, holds)
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
		s.nudge()
	})
}

// published lets the next worker publish while this one writes what came of its calls.
func (s *session) published() {
	<-s.slots
	s.mu.Lock()
	s.publishing--
	s.mu.Unlock()
	s.nudge()
}

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pause waits for d (forever: until woken), a wake or the end of ctx.
func (s *session) pause(ctx context.Context, d time.Duration) {
	var timer clock.Timer
	if d < forever {
		timer = s.r.cfg.clock.AfterFunc(d, s.nudge)
		defer timer.Stop()
	}
	select {
	case <-s.wake:
	case <-ctx.Done():
	}
}

const forever = time.Duration(1<<63 - 1)

// next is what to work on now, or how long to wait for something; done ends a session that ends by itself.
func (s *session) next(work context.Context) (holds []*hold, wait time.Duration, done bool) {
	now := s.r.cfg.clock.Mono()
	s.mu.Lock()
	busy, publishing, outages := s.busy, s.publishing, s.outages
	s.mu.Unlock()
	if publishing > s.r.cfg.workers || busy > 2*s.r.cfg.workers {
		return nil, forever, false
	}
	if s.once && outages >= drainTries {
		return nil, forever, busy == 0
	}
	if until, down := s.r.gate.state(); down {
		if until > now {
			return nil, until - now, false
		}
		if busy > 0 { // one call is enough to see whether the broker is back
			return nil, forever, false
		}
	}
	if holds, wait = s.takeHeld(now); len(holds) > 0 {
		return holds, 0, false
	}
	if s.claimAt > now {
		return nil, min(wait, s.claimAt-now), false
	}
	holds, err := s.claim(work)
	if err != nil {
		return nil, min(wait, s.sourceFailed(err)), s.once
	}
	if len(holds) > 0 {
		return holds, 0, false
	}
	if s.once { // the end, unless a worker had a claim in hand while we looked, or something waits
		return nil, wait, busy == 0 && wait == forever
	}
	return nil, min(wait, s.claimAt-now), false
}

// takeHeld takes holds whose time has come, up to a batch of messages, and tells how long it is until the next.
func (s *session) takeHeld(now time.Duration) (ready []*hold, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = forever
	messages := 0
	s.held = slices.DeleteFunc(s.held, func(h *hold) bool {
		if h.readyAt > now {
			wait = min(wait, h.readyAt-now)
			return false
		}
		if messages > 0 && messages+len(h.pending) > s.r.cfg.batch {
			wait = 0
			return false
		}
		messages += len(h.pending)
		ready = append(ready, h)
		return true
	})
	return ready, wait
}

// claim looks at the source, and settles when to look next.
func (s *session) claim(work context.Context) ([]*hold, error) {
	r := s.r
	ctx, cancel := r.cfg.clock.WithTimeout(work, r.cfg.lease)
	defer cancel()
	until := r.cfg.clock.Mono() + r.cfg.lease // counted from before the claim: early rather than late
	batches, err := r.source.Claim(ctx, r.cfg.batch, r.cfg.lease)
	if err != nil {
		return nil, err
	}
	s.errorWaits.Reset()
	r.counts.looked()
	holds := make([]*hold, 0, len(batches))
	for _, b := range batches {
		if len(b.Messages) > 0 {
			holds = append(holds, newHold(b, until))
		}
	}
	r.counts.claimed(holds...)
	if len(holds) > 0 {
		s.poll, s.claimAt = r.cfg.pollMin, 0
		return holds, nil
	}
	if !s.once {
		// Spread, so that relays that were started together do not look together.
		spread := time.Duration((0.75 + rand.Float64()/2) * float64(s.poll))
		s.claimAt = r.cfg.clock.Mono() + spread
		s.poll = min(2*s.poll, r.cfg.pollMax)
	}
	return nil, nil
}

func (s *session) sourceFailed(err error) time.Duration {
	s.r.counts.add(func(st *Stats) { st.SourceErrors++ })
	s.r.cfg.logger.Warn("source_failed", zap.String("doing", "claim due messages"), zap.Error(err))
	s.source = fmt.Errorf("outbox: claim due messages: %w", err)
	wait := s.errorWaits.NextBackOff()
	s.claimAt = s.r.cfg.clock.Mono() + wait
	return wait
}

// work brings the holds as far as it can.
func (s *session) work(ctx context.Context, holds []*hold) {
	s.slots <- struct{}{}
	for len(holds) > 0 {
		outcomes := s.attempt(ctx, holds)
		holds = holds[:0]
		var settle []outcome
		for _, o := range outcomes {
			s.r.counts.progress(o.h)
			if o.standing == goesOn {
				holds = append(holds, o.h)
			} else {
				settle = append(settle, o)
			}
		}
		if len(holds) == 0 {
			s.published()
		}
		each(settle, func(o outcome) { s.settle(ctx, o) })
	}
}

// attempt is the relay's, unless an outage was seen meanwhile.
func (s *session) attempt(ctx context.Context, holds []*hold) []outcome {
	if until, _ := s.r.gate.state(); until > s.r.cfg.clock.Mono() {
		out := make([]outcome, len(holds))
		for i, h := range holds {
			out[i] = outcome{h: h, standing: down, err: ErrOutage}
		}
		return out
	}
	outcomes := s.r.attempt(ctx, holds, forever)
	s.noteOutage(outcomes)
	return outcomes
}

// noteOutage counts calls that failed as a whole, in a row.
func (s *session) noteOutage(outcomes []outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(outcomes, func(o outcome) bool { return o.standing == down })
	if i < 0 {
		s.outages = 0
		return
	}
	s.outages++
	s.outage = outcomes[i].asError()
}

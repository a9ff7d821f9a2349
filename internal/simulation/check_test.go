package simulation

import (
	"context"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// play runs the simulation to its end and returns what was wrong.
func (s *sim) play() []string {
	for s.events < s.cfg.events {
		synctest.Wait() // what the last event has set off draws from the same random numbers
		if len(s.book.Broken()) > 0 {
			break
		}
		if rec := s.book.Record(); rec != nil && rec.Status.Ended() && s.rng.IntN(100) < 3 {
			break
		}
		if s.rng.IntN(100) < 18 || !s.step() {
			s.disturb()
			s.events++
		}
	}
	s.heal()
	s.rest()
	s.conclude()
	s.bury()
	time.Sleep(time.Second) // the bubble's own time, which costs none: what the library keeps idle for a while ends
	return s.book.Broken()
}

const enough = 20_000

// heal lets everything that is under way end, and late writes arrive.
func (s *sim) heal() {
	s.mu.Lock()
	s.healed = true
	for _, w := range s.ways {
		w.slow = 0
	}
	s.mu.Unlock()
	s.idle()
	for len(s.lateOps) > 0 {
		s.land()
	}
}

// idle waits until nothing is under way.
func (s *sim) idle() {
	for range enough {
		synctest.Wait()
		s.mu.Lock()
		over := s.running == 0 && len(s.waiting) == 0
		s.mu.Unlock()
		if over {
			return
		}
		if !s.step() {
			break
		}
	}
	s.book.Break("what is under way does not end")
}

// rest brings the run to rest with one worker, and an operator where one is needed.
func (s *sim) rest() {
	w := s.born(0, 1000, newClock(s.clk.Now()))
	s.ways = []*worker{w}
	for i := range 40 {
		rec := s.book.Record()
		switch {
		case len(s.book.Broken()) > 0:
			return
		case rec != nil && rec.Status.Ended():
			s.drain(w)
			return
		case rec != nil && rec.Status == state.StatusBlocked:
			s.do(w, "operator", s.verb(w, rec, min(i/4, 3)))
		default:
			s.do(w, "run", func(ctx context.Context) error { return s.checkRun(w.o.Run(ctx, theKey, theInput)) })
		}
		s.idle()
		s.pass(6 * lease)
	}
	s.book.Break("the run does not come to rest: it is %s", s.book.Record().Status)
}

func (s *sim) drain(w *worker) {
	for range 20 {
		s.do(w, "relay", func(ctx context.Context) error { return s.relayOnce(ctx, w) })
		s.idle()
		s.pass(2 * lease)
	}
}

// conclude balances the outside world against the record.
func (s *sim) conclude() {
	rec := s.book.Record()
	if rec == nil || !rec.Status.Ended() || len(s.book.Broken()) > 0 {
		return
	}
	for _, sh := range s.shapes.steps {
		key := s.runKey + "/" + sh.name
		step, _ := rec.Step(sh.name)
		n := s.world.count(key)
		most := 1
		if sh.atMostOnce {
			most += s.retries[sh.name]
		}
		switch {
		case n > most:
			s.book.Break("the effect of step %s stands %d times", sh.name, n)
		case rec.Status == state.StatusCompleted && step.Status == state.StepDone && n == 0:
			s.book.Break("COMPLETED, and the effect of step %s does not stand", sh.name)
		case step.Status == state.StepSkipped && n > 0:
			s.book.Break("step %s was skipped, and has an effect", sh.name)
		case rec.Status != state.StatusCompleted && sh.compensates == 2 && n > 0:
			s.book.Break("%s, and the effect of step %s (%s, unknown: %t) still stands", rec.Status, sh.name, step.Status, step.Unknown)
		}
	}
	if now, err := s.inner.Get(context.Background(), s.runKey); err != nil || now.ExpiresAt.IsZero() || len(now.Outbox.Messages) > 0 {
		s.book.Break("%s, its messages are sent, and its record is not closed (%v)", rec.Status, err)
	}
	due := s.book.Messages()
	for _, m := range due {
		if s.arrived[m.ID] == 0 {
			s.book.Break("message %s never arrived", m.ID)
		}
	}
	if len(s.arrived) > len(due) {
		s.book.Break("%d messages arrived, of %d that were due", len(s.arrived), len(due))
	}
	for _, sh := range s.shapes.steps {
		for i := range sh.emits {
			id := fmt.Sprintf("%s/%s/%d", s.runKey, sh.name, i)
			if marked := s.marked(rec, sh.name); s.book.WasDone(sh.name) && s.arrived[id] == 0 && !marked {
				s.book.Break("step %s is recorded, and its message %s never arrived", sh.name, id)
			}
		}
	}
}

// marked tells whether a person has recorded the step.
func (s *sim) marked(rec *state.Record, step string) bool {
	for _, a := range rec.Audit {
		if a.Verb == "mark_done" && a.Step == step {
			return true
		}
	}
	return false
}

// bury ends every thread that is left, so that nothing outlives the run.
func (s *sim) bury() {
	for range enough {
		synctest.Wait()
		s.mu.Lock()
		waiting := s.waiting
		s.waiting = nil
		running := s.running
		s.mu.Unlock()
		if len(waiting) == 0 && running == 0 {
			return
		}
		for _, t := range waiting {
			t.resume <- dies
		}
		if len(waiting) == 0 && !s.step() {
			return
		}
	}
}

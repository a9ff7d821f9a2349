package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

const theInput = 7

// disturb lets something happen that is nobody's answer: time passes, a clock jumps, a caller leaves, a late write
// arrives, an idle worker is asked for something.
func (s *sim) disturb() {
	synctest.Wait()
	w := s.ways[s.rng.IntN(len(s.ways))]
	switch n := s.rng.IntN(100); {
	case n < 8 && s.may(lapse):
		s.met[lapse]++
		s.pass(time.Duration(s.rng.Int64N(int64(3 * lease))))
	case n < 9 && s.may(lapse):
		s.pass(2 * time.Hour)
	case n < 12 && s.may(skew):
		s.met[skew]++
		w.clk.jump(time.Duration(s.rng.Int64N(int64(4*lease))) - 2*lease)
	case n < 14 && s.may(throttle):
		s.met[throttle]++
		s.mu.Lock()
		w.slow += 1 + s.rng.IntN(8)
		s.mu.Unlock()
	case n < 16 && s.may(leaves) && w.busy:
		s.met[leaves]++
		w.leave()
	case n < 18 && s.may(dies):
		s.met[dies]++
		s.crash(w)
	case n < 22:
		s.land()
	case !w.busy:
		s.ask(w)
	}
}

// land lets a late write arrive.
func (s *sim) land() {
	s.mu.Lock()
	if len(s.lateOps) == 0 {
		s.mu.Unlock()
		return
	}
	i := s.rng.IntN(len(s.lateOps))
	op := s.lateOps[i]
	s.lateOps = slices.Delete(s.lateOps, i, i+1)
	s.mu.Unlock()
	op()
}

// ask gives an idle worker something to do.
func (s *sim) ask(w *worker) {
	run := func(ctx context.Context) error { return s.checkRun(w.o.Run(ctx, theKey, theInput)) }
	rec := s.book.Record()
	blocked := rec != nil && rec.Status == state.StatusBlocked
	switch n := s.rng.IntN(100); {
	case n < 4 && s.may(cancel):
		s.met[cancel]++
		s.do(w, "cancel", func(ctx context.Context) error { return w.o.Cancel(ctx, theKey, "sim") })
	case n < 12 && rec != nil && (rec.Status == state.StatusCompleted && n < 8 || n < 5) && s.may(reverse):
		s.met[reverse]++
		s.do(w, "reverse", func(ctx context.Context) error { return w.o.Reverse(ctx, theKey, "sim") })
	case n < 20 && s.may(relay):
		s.met[relay]++
		s.do(w, "relay", func(ctx context.Context) error { return s.relayOnce(ctx, w) })
	case n < 28 && s.may(recovers):
		s.met[recovers]++
		s.do(w, "recover", func(ctx context.Context) error { _, err := saga.Recover(ctx, w.o); return err })
	case n < 30 && rec != nil:
		s.do(w, "other", func(ctx context.Context) error {
			_, err := w.o.Run(ctx, theKey, theInput+1)
			if err == nil {
				s.book.Break("another payload under the same key was answered with success")
			}
			return err
		})
	case n < 70 && blocked && s.may(people):
		s.met[people]++
		verb := s.verb(w, rec, s.rng.IntN(4))
		s.do(w, "operator", verb)
	case n < 80:
		s.do(w, "resume", func(ctx context.Context) error { return s.checkRun(w.o.Resume(ctx, theKey)) })
	default:
		s.do(w, "run", run)
	}
}

// verb is what an operator does about a blocked run. What they say of the outside world is so.
func (s *sim) verb(w *worker, rec *state.Record, n int) func(context.Context) error {
	step := rec.CurrentStep
	key := s.runKey + "/" + step
	switch {
	case n == 0:
		return func(ctx context.Context) error {
			err := w.o.Retry(ctx, theKey, "sim")
			s.mu.Lock()
			s.retries[step]++
			s.mu.Unlock()
			return err
		}
	case rec.EndsAs != "":
		return func(ctx context.Context) error {
			s.world.undo(key)
			return w.o.MarkCompensated(ctx, theKey, step, "sim")
		}
	case n == 1:
		return func(ctx context.Context) error {
			err := w.o.MarkDone(ctx, theKey, step, output(key), "sim")
			if s.book.WasDone(step) {
				s.world.byHand(key)
			}
			return err
		}
	}
	return func(ctx context.Context) error { return w.o.ForceCompensate(ctx, theKey, "sim") }
}

// do runs an operation on a worker, whose end the scheduler sees.
func (s *sim) do(w *worker, name string, op func(context.Context) error) {
	ctx, leave := context.WithCancel(context.Background())
	w.busy, w.leave = true, leave
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
	go func() {
		defer leave()
		err := op(ctx)
		s.note("%s on %d.%d: %v", name, w.slot, w.life, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		w.busy = false
		illegal := errors.Is(err, state.ErrTransition) || errors.Is(err, state.ErrCorrupt) || errors.Is(err, saga.ErrDefinitionChanged)
		if illegal {
			s.book.Break("%s: %v", name, err)
		}
	}()
}

// checkRun holds an answer against the record.
func (s *sim) checkRun(out []string, err error) error {
	now := s.book.Transitions()
	was := func(st state.Status) bool {
		for t := range now {
			if t.To == st {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		rec := s.book.Record()
		raw, _ := json.Marshal(out)
		if !was(state.StatusCompleted) || rec.Response != nil && !bytes.Equal(raw, rec.Response) {
			s.book.Break("an answer of %s, and the record is %s with %s", raw, rec.Status, rec.Response)
		}
	case errors.Is(err, saga.ErrFailed) && !was(state.StatusFailed),
		errors.Is(err, saga.ErrBlocked) && !was(state.StatusBlocked),
		errors.Is(err, saga.ErrReversed) && !was(state.StatusReversed):
		s.book.Break("an answer that the record has never been: %v", err)
	}
	return err
}

// relayOnce sends what is due, as a relay of this worker.
func (s *sim) relayOnce(ctx context.Context, w *worker) error {
	batches, err := w.net.Claim(ctx, 10, lease)
	if err != nil {
		return err
	}
	for _, b := range batches {
		var ids []string
		for _, m := range b.Messages {
			s.mu.Lock()
			s.arrived[m.ID]++
			s.mu.Unlock()
			ids = append(ids, m.ID)
		}
		if err := w.net.Sent(ctx, b, ids); err != nil {
			return err
		}
	}
	return nil
}

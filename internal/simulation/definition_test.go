package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const (
	lease = 10 * time.Second
	month = 30 * 24 * time.Hour
)

// shape is a random declaration of a step.
type shape struct {
	name        string
	compensates int // 0: nothing declared, 1: NoCompensation, 2: Compensate
	pivot       bool
	atMostOnce  bool
	probe       bool
	skipped     bool
	maxAttempts int
	keyValid    time.Duration
	timeout     time.Duration
	perRun      int
	emits       int
	undoEmits   int
}

type shapes struct {
	steps    []shape
	deadline time.Duration
}

// randomShapes declares 1 to most steps.
func randomShapes(rng *rand.Rand, most int) shapes {
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	all := shapes{steps: make([]shape, 1+rng.IntN(most))}
	pivot := -1
	if chance(40) {
		pivot = rng.IntN(len(all.steps))
	}
	for i := range all.steps {
		s := &all.steps[i]
		*s = shape{name: fmt.Sprintf("s%d", i+1), pivot: i == pivot, probe: chance(35), atMostOnce: chance(15), perRun: 1 + rng.IntN(3), emits: max(0, rng.IntN(5)-2), undoEmits: max(0, rng.IntN(6)-4)}
		s.skipped = i != pivot && chance(15)
		switch {
		case chance(75):
			s.compensates = 2
		case chance(50) || i < pivot:
			s.compensates = 1
		}
		if !s.atMostOnce && chance(12) {
			s.maxAttempts = 2 + rng.IntN(4)
		}
		if chance(12) {
			s.keyValid = time.Hour
		}
		if chance(12) {
			s.timeout = 15 * time.Second
		}
	}
	if chance(12) {
		all.deadline = 10 * time.Minute
	}
	return all
}

// define makes the definition for one worker.
func (s *sim) define(w *worker) *saga.Definition[int, []string] {
	var typed []*steps.Step[int, string]
	var declared []steps.Declared[int]
	for _, sh := range s.shapes.steps {
		step := s.declare(w, sh)
		typed, declared = append(typed, step), append(declared, step)
	}
	d := saga.Define("sim", func(_ context.Context, r *steps.Run[int]) ([]string, error) {
		out := []string{}
		for _, step := range typed {
			if got, ok := step.Lookup(r); ok {
				out = append(out, got)
			}
		}
		return out, nil
	}, declared...).Retention(month)
	if s.shapes.deadline > 0 {
		d.Deadline(s.shapes.deadline)
	}
	return d
}

func (s *sim) declare(w *worker, sh shape) *steps.Step[int, string] {
	policy := steps.RetryPolicy{PerRun: sh.perRun, Initial: time.Second, Jitter: -1}
	step := steps.New(sh.name, func(ctx context.Context, r *steps.Run[int]) (string, error) {
		for i := range sh.emits {
			r.Emit(outbox.Message{Topic: "done", Body: fmt.Sprint(sh.name, i)})
		}
		return s.forward(ctx, w, sh, r.IdempotencyKey())
	}).CompensateRetry(policy)
	switch sh.compensates {
	case 1:
		step.NoCompensation()
	case 2:
		step.Compensate(func(ctx context.Context, r *steps.Run[int], did steps.Outcome[string]) error {
			for i := range sh.undoEmits {
				r.Emit(outbox.Message{Topic: "undone", Body: fmt.Sprint(sh.name, i)})
			}
			return s.backward(ctx, w, did)
		})
	}
	if sh.atMostOnce {
		step.AtMostOnce()
	} else {
		step.Retry(policy)
	}
	if sh.maxAttempts > 0 {
		step.MaxAttempts(sh.maxAttempts)
	}
	if sh.keyValid > 0 {
		step.KeyValid(sh.keyValid)
	}
	if sh.timeout > 0 {
		step.Timeout(sh.timeout)
	}
	if sh.pivot {
		step.Pivot()
	} else {
		step.When(func(*steps.Run[int]) bool { return !sh.skipped })
	}
	if sh.probe {
		step.Probe(func(ctx context.Context, r *steps.Run[int]) (string, bool, error) {
			key := r.IdempotencyKey()
			switch s.yield(ctx, w, "probe "+sh.name) {
			case ok:
			default:
				return "", false, errors.New("the probe failed")
			}
			if !s.world.probe(key, w.way.View().Runs) {
				return "", false, nil
			}
			for i := range sh.emits {
				r.Emit(outbox.Message{Topic: "done", Body: fmt.Sprint(sh.name, i)})
			}
			return output(key), true, nil
		})
	}
	return step
}

// forward is a step's call, as the scheduler will have it.
func (s *sim) forward(ctx context.Context, w *worker, sh shape, key string) (string, error) {
	hold := w.way.View().Runs
	switch s.yield(ctx, w, "do "+sh.name) {
	case fails:
		return "", errors.New("the participant can't be reached")
	case refuses:
		if s.world.refuse(key) {
			return "", steps.WithCode("refused", steps.Permanent(errors.New("refused")))
		}
	case later:
		return "", steps.RetryAfter(time.Minute, nil)
	case panics:
		panic("in a step")
	case dies:
		return "", errDead
	}
	if !s.world.do(key, sh.atMostOnce, hold) {
		return "", steps.Permanent(errors.New("the call came too late"))
	}
	switch s.yield(ctx, w, "did "+sh.name) {
	case fails:
		return "", errors.New("the answer was lost")
	case exits:
		runtime.Goexit()
	case dies:
		return "", errDead
	}
	return output(key), nil
}

// backward is a compensation's call.
func (s *sim) backward(ctx context.Context, w *worker, did steps.Outcome[string]) error {
	key := did.Key.String()
	if did.Known && did.Output != output(key) {
		s.book.Break("a compensation was given the result %q, not %q", did.Output, output(key))
	}
	switch s.yield(ctx, w, "undo") {
	case fails:
		return errors.New("the participant can't be reached")
	case refuses:
		return steps.Permanent(errors.New("can't be undone"))
	case panics:
		panic("in a compensation")
	case dies:
		return errDead
	}
	s.world.undo(key)
	switch s.yield(ctx, w, "undid") {
	case fails:
		return errors.New("the answer was lost")
	case dies:
		return errDead
	}
	return nil
}

package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/compensate"
	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Recoverable is an orchestrator of any types. Only orchestrators are.
type Recoverable interface{ recoverable() *engine }

func (o *Orchestrator[In, Out]) recoverable() *engine { return o.e }

// Recovered counts what became of the runs that one recovery took up.
type Recovered struct {
	// Completed runs.
	Completed int
	// Failed runs: everything undone, reversed ones included.
	Failed int
	// Interrupted runs: they stopped again, and will be taken up again.
	Interrupted int
	// Blocked runs: an operator is needed.
	Blocked int
	// Lost are runs that someone else was quicker to take up, or that changed or vanished meanwhile.
	Lost int
}

// Recover takes up, once, the runs that nobody is at work on: IN_PROGRESS and COMPENSATING ones whose lease has lapsed or
// that were laid down, and INTERRUPTED ones past their not_before. A run that was laid down waits since its last attempt
// for a time that grows with every take-up: none after the first, then 1 s, 3 s, 7 s ... up to ten minutes. One that an
// operator has acted on since, or that has only a cancel to obey, waits for nothing.
//
// Several runs are in hand at once, see [WithRecoverers], so that one that takes its time doesn't hold up the others.
// Recover returns when all have come to rest.
//
// Losing a race is no error, and neither is what becomes of a run; an error means that a store could not be listed, or
// that ctx has ended. Several processes may recover at once.
func Recover(ctx context.Context, orchestrators ...Recoverable) (Recovered, error) {
	if err := anyNil(orchestrators); err != nil {
		return Recovered{}, fmt.Errorf("saga: Recover: %w", err)
	}
	sums, errs := make([]Recovered, len(orchestrators)), make([]error, len(orchestrators))
	each(orchestrators, func(i int, e *engine) { sums[i], errs[i] = e.recover(ctx) })
	var sum Recovered
	for _, s := range sums {
		sum.add(s)
	}
	return sum, errors.Join(errs...)
}

// RecoverLoop recovers now and then every so often until ctx ends, whose cause it returns. Each orchestrator is recovered by
// a loop of its own. Errors are logged by the orchestrators and tried again.
func RecoverLoop(ctx context.Context, every time.Duration, orchestrators ...Recoverable) error {
	if every <= 0 {
		return fmt.Errorf("saga: RecoverLoop: the interval %v must be positive", every)
	}
	if len(orchestrators) == 0 {
		return errors.New("saga: RecoverLoop: no orchestrator given")
	}
	if err := anyNil(orchestrators); err != nil {
		return fmt.Errorf("saga: RecoverLoop: %w", err)
	}
	errs := make([]error, len(orchestrators))
	each(orchestrators, func(i int, e *engine) { errs[i] = e.recoverLoop(ctx, every) })
	return errs[0]
}

func (e *engine) recoverLoop(ctx context.Context, every time.Duration) error {
	for {
		if _, err := e.recover(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("recovery_failed", zap.Error(err))
		}
		if err := e.clk.Sleep(ctx, every); err != nil {
			return err
		}
	}
}

func anyNil(orchestrators []Recoverable) error {
	for i, o := range orchestrators {
		if absent.Is(o) {
			return fmt.Errorf("%w: orchestrator %d is nil", ErrInvalidDefinition, i+1)
		}
	}
	return nil
}

// each calls f for every orchestrator's engine, all at once.
func each(orchestrators []Recoverable, f func(i int, e *engine)) {
	if len(orchestrators) == 1 {
		f(0, orchestrators[0].recoverable())
		return
	}
	var wg sync.WaitGroup
	for i, o := range orchestrators {
		wg.Go(func() { f(i, o.recoverable()) })
	}
	wg.Wait()
}

func (r *Recovered) add(o Recovered) {
	r.Completed += o.Completed
	r.Failed += o.Failed
	r.Interrupted += o.Interrupted
	r.Blocked += o.Blocked
	r.Lost += o.Lost
}

// recover is one round. With one recoverer it starts no goroutine, so that a test can have everything happen in order.
func (e *engine) recover(ctx context.Context) (sum Recovered, err error) {
	if e.recoverers == 1 {
		err = e.eachDue(ctx, func(rec *state.Record) { e.recoverOne(ctx, rec, &sum) })
	} else {
		err = e.recoverSeveral(ctx, &sum)
	}
	return sum, cmp.Or(err, causeOf(ctx))
}

// recoverSeveral has up to so many runs in hand at once, and returns when all have come to rest.
func (e *engine) recoverSeveral(ctx context.Context, sum *Recovered) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, e.recoverers)
	err := e.eachDue(ctx, func(rec *state.Record) {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-places }()
			var one Recovered
			e.recoverOne(ctx, rec, &one)
			mu.Lock()
			defer mu.Unlock()
			sum.add(one)
		})
	})
	wg.Wait()
	return err
}

// eachDue goes through the runs that may be taken up now.
func (e *engine) eachDue(ctx context.Context, f func(*state.Record)) error {
	q := state.Query{
		Statuses:     []state.Status{state.StatusInProgress, state.StatusInterrupted, state.StatusCompensating},
		Operation:    e.plan.name,
		LapsedBefore: e.now(),
	}
	for {
		page, err := e.store.List(ctx, q)
		if err != nil {
			return fmt.Errorf("saga: recover %s: %w: %w", e.plan.name, ErrStore, err)
		}
		for _, rec := range page.Records {
			if err := causeOf(ctx); err != nil {
				return err
			}
			if e.due(rec) {
				f(rec)
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Cursor = page.Next
	}
}

const longestWait = 10 * time.Minute

// due tells whether recovery may take the run up now.
func (e *engine) due(rec *state.Record) bool {
	now := e.now()
	if rec.LeaseLive(now) {
		return false
	}
	if rec.Cancel != nil && rec.Status == state.StatusInterrupted && compensate.MayGoBack(rec.Steps, rec.Pivot) {
		return true // it has only to turn round
	}
	if now.Before(rec.NotBefore) {
		return false
	}
	if !rec.LeaseUntil.IsZero() {
		return true // its holder died
	}
	if n := len(rec.Audit); n > 0 && !rec.Audit[n-1].At.Before(rec.UpdatedAt) {
		return true // a person has seen to it since its last attempt
	}
	wait := longestWait
	if rec.Runs < 11 {
		wait = min(wait, time.Duration(1<<max(rec.Runs-1, 0)-1)*time.Second)
	}
	return !now.Before(rec.UpdatedAt.Add(wait))
}

func (e *engine) recoverOne(ctx context.Context, rec *state.Record, sum *Recovered) {
	key, err := state.ParseKey(rec.Key)
	if err != nil {
		e.log.Error("recovery_failed", zap.String("key", rec.Key), zap.Error(err))
		return
	}
	var info RunInfo
	_, err = e.run(ctx, key, nil, runConfig{report: &info})
	switch {
	case info.Replayed: // it has come to rest by someone else's doing
		sum.Lost++
	case err == nil:
		sum.Completed++
	case errors.Is(err, ErrFailed), errors.Is(err, ErrReversed):
		sum.Failed++
	case errors.Is(err, ErrBlocked):
		sum.Blocked++
	case errors.Is(err, ErrInProgress), errors.Is(err, ErrLeaseLost), errors.Is(err, ErrNotFound):
		sum.Lost++
	case errors.Is(err, ErrInterrupted):
		sum.Interrupted++ // told by the run itself
	default:
		sum.Interrupted++
		e.log.Warn("recovery_interrupted", zap.String("key", rec.Key), zap.Error(err))
	}
}

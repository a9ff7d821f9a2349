package saga_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// chance is one run in which everything may go wrong that a script of chance asks for, and the promises that hold all
// the same. The participant honours keys, and a key that was undone can't be used again.
type chance struct {
	t     *testing.T
	seed  uint64
	key   saga.Key
	rng   *rand.Rand
	clk   *clock.Fake
	store state.Store
	dying *mortal // the store as the process at work sees it

	n, pivot int    // pivot is a position, or -1
	probes   []bool // the step has a Probe
	stands   []bool // its effect stands
	closed   []bool // its key was made unusable
	refused  []bool // it says no for good, and always has
	once     []bool // it is declared as at most once
	optional []bool // it has a When, which is not even pure
	calls    []int
	retried  []bool // a person has allowed one more call of an at-most-once step

	forced    bool // a person sent it back
	cancelled bool // a request was acknowledged, and there is no pivot
	calmSince int  // processes from this on meet no more trouble
	process   int
	people    int // how often a person was needed
	log       []string
}

func (c *chance) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *chance) failf(format string, args ...any) {
	c.t.Helper()
	for _, l := range c.log {
		c.t.Log(l)
	}
	c.t.Errorf("seed %d: "+format, append([]any{c.seed}, args...)...)
}

func (c *chance) calm() bool { return c.process >= c.calmSince }

// trouble is how a call goes wrong before or after its effect; nil: it doesn't.
func (c *chance) trouble(where string) error {
	if c.calm() {
		return nil
	}
	switch c.rng.IntN(16) {
	case 0:
		c.note("  %s: transient", where)
		return errors.New("no answer")
	case 1:
		c.note("  %s: panic", where)
		panic("oh")
	case 2:
		c.note("  %s: the process dies", where)
		c.dying.kill()
		return nil
	case 3:
		c.note("  %s: goexit", where)
		runtime.Goexit()
	case 4:
		c.note("  %s: the lease passes", where)
		c.clk.Advance(saga.DefaultLease * 2)
	}
	return nil
}

func (c *chance) record() *state.Record { return recordOf(c.t, c.store, c.key, "chance") }

func (c *chance) do(i int) (string, error) {
	rec := c.record()
	switch {
	case rec.Steps[i].Status == state.StepDone:
		c.failf("s%d was called although it is recorded as done", i)
	case rec.Steps[i].Status == state.StepSkipped:
		c.failf("s%d was called although it is recorded as skipped", i)
	case c.once[i] && c.calls[i] > 0 && !c.retried[i]:
		c.failf("s%d was called a second time", i)
	case rec.EndsAs != "":
		c.failf("s%d was called on the way back", i)
	case slices.ContainsFunc(rec.Steps[:i], func(s state.StepRecord) bool { return !s.Status.Finished() }):
		c.failf("s%d was called before its turn", i)
	}
	c.note(" do s%d", i)
	c.calls[i]++
	c.retried[i] = false
	if err := c.trouble("before"); err != nil {
		return "", err
	}
	if c.closed[i] {
		return "", steps.Permanent(errors.New("that key is closed"))
	}
	if c.refused[i] && !c.stands[i] {
		return "", steps.Permanent(errRefuse)
	}
	c.stands[i] = true
	return fmt.Sprint("r", i), c.trouble("after")
}

func (c *chance) undo(i int, did steps.Outcome[string]) error {
	rec := c.record()
	switch {
	case rec.Status != state.StatusCompensating:
		c.failf("s%d was undone in a run that is %s", i, rec.Status)
	case rec.Steps[i].Status == state.StepCompensated:
		c.failf("s%d was undone although that is recorded", i)
	case did.Known && did.Output != fmt.Sprint("r", i):
		c.failf("s%d is undone with the output %q", i, did.Output)
	case c.pivot >= 0 && i <= c.pivot && c.stands[c.pivot] && !c.forced:
		c.failf("s%d was undone although the pivot stands", i)
	}
	for j := i + 1; j < c.n; j++ {
		if c.stands[j] && c.declares(j) {
			c.failf("s%d was undone before s%d", i, j)
		}
	}
	c.note(" undo s%d, known: %v", i, did.Known)
	if err := c.trouble("before the undo"); err != nil {
		return err
	}
	if !c.calm() && c.rng.IntN(12) == 0 {
		return steps.Permanent(errors.New("it can't be undone"))
	}
	c.stands[i], c.closed[i] = false, true
	return c.trouble("after the undo")
}

// declares tells whether the step has a compensation: all have but those from the pivot on.
func (c *chance) declares(i int) bool { return c.pivot < 0 || i < c.pivot }

func (c *chance) definition() *saga.Definition[order, []string] {
	var typed []*steps.Step[order, string]
	var declared []steps.Declared[order]
	for i := range c.n {
		s := steps.New(fmt.Sprintf("s%d", i), func(context.Context, *orderRun) (string, error) { return c.do(i) }).
			CompensateRetry(steps.RetryPolicy{PerRun: 2})
		if c.once[i] {
			s.AtMostOnce()
		} else {
			s.Retry(steps.RetryPolicy{PerRun: 2})
		}
		if c.optional[i] {
			s.When(func(*orderRun) bool { return c.rng.IntN(2) == 0 })
		}
		if c.declares(i) {
			s.Compensate(func(_ context.Context, _ *orderRun, did steps.Outcome[string]) error { return c.undo(i, did) })
		}
		if i == c.pivot {
			s.Pivot()
		}
		if c.probes[i] {
			s.Probe(func(context.Context, *orderRun) (string, bool, error) {
				c.note(" probe s%d: %v", i, c.stands[i])
				if err := c.trouble("in the probe"); err != nil {
					return "", false, err
				}
				return fmt.Sprint("r", i), c.stands[i], nil
			})
		}
		typed, declared = append(typed, s), append(declared, s)
	}
	return saga.Define("chance", func(_ context.Context, r *orderRun) (out []string, _ error) {
		for _, s := range typed {
			got, _ := s.Lookup(r)
			out = append(out, got)
		}
		return out, nil
	}, declared...)
}

func newChance(t *testing.T, seed uint64, clk *clock.Fake, store state.Store) *chance {
	c := &chance{t: t, seed: seed, key: saga.Key{Tenant: "t", ID: strconv.FormatUint(seed, 10)}, rng: rand.New(rand.NewPCG(seed, 7)), clk: clk, store: store}
	c.n = 1 + c.rng.IntN(4)
	c.pivot = c.rng.IntN(2*c.n) - c.n
	c.pivot = max(c.pivot, -1)
	c.calmSince = c.rng.IntN(8)
	for _, flags := range []*[]bool{&c.stands, &c.closed, &c.refused, &c.probes, &c.once, &c.optional, &c.retried} {
		*flags = make([]bool, c.n)
	}
	c.calls = make([]int, c.n)
	for i := range c.n {
		c.refused[i] = c.rng.IntN(8) == 0
		c.probes[i] = c.rng.IntN(3) == 0
		c.once[i] = c.rng.IntN(6) == 0
		c.optional[i] = i != c.pivot && c.rng.IntN(5) == 0
	}
	c.note("%d steps, pivot %d, probes %v, refused %v, at most once %v, optional %v", c.n, c.pivot, c.probes, c.refused, c.once, c.optional)
	return c
}

// next is one process: it does one thing with the run.
func (c *chance) next() (done bool) {
	c.dying = &mortal{Store: c.store}
	if !c.calm() && c.rng.IntN(3) == 0 {
		c.dying.dieAt, c.dying.landed = int64(1+c.rng.IntN(8)), c.rng.IntN(2) == 0
	}
	o := newSaga(c.t, c.definition(), c.dying, saga.WithClock(c.clk))
	defer func() { c.process++ }()
	if !c.calm() && c.rng.IntN(12) == 0 {
		var pivotStands bool
		if rec, err := c.store.Get(c.t.Context(), fmt.Sprintf("t#chance#%d", c.seed)); err == nil && c.pivot >= 0 {
			pivotStands = c.stands[c.pivot] || rec.Steps[c.pivot].Status == state.StepDone
		}
		err := o.Cancel(c.t.Context(), c.key, "by chance")
		c.note("process %d: cancel: %v", c.process, err)
		if err == nil && !pivotStands && c.pivot < 0 {
			c.cancelled = true
		}
		return false
	}
	if c.rng.IntN(6) == 0 {
		got, err := saga.Recover(c.t.Context(), o)
		c.note("process %d: recover: %+v %v", c.process, got, err)
	}
	got, err := o.Run(c.t.Context(), c.key, theOrder)
	c.note("process %d: run: %v %v", c.process, got, err)
	switch {
	case err == nil:
		c.completed(got)
		if c.rng.IntN(4) == 0 {
			c.forced = true
			c.note("a reversal: %v", o.Reverse(c.t.Context(), c.key, "by chance"))
			return false
		}
	case errors.Is(err, saga.ErrReversed):
		c.failed(sagaError(c.t, err, saga.ErrReversed).NotUndone)
	case errors.Is(err, saga.ErrFailed):
		c.failed(sagaError(c.t, err, saga.ErrFailed).NotUndone)
	case errors.Is(err, saga.ErrBlocked):
		c.people++
		c.blocked()
		return false
	default:
		if c.rng.IntN(2) == 0 || c.calm() {
			c.clk.Advance(saga.DefaultLease + time.Second)
		}
		return false
	}
	return true
}

func (c *chance) completed(got []string) {
	rec := c.record()
	for i := range c.n {
		switch skipped := rec.Steps[i].Status == state.StepSkipped; {
		case skipped && (!c.optional[i] || c.stands[i] || got[i] != ""):
			c.failf("it is COMPLETED with %v, and s%d is skipped", got, i)
		case !skipped && (!c.stands[i] || got[i] != fmt.Sprint("r", i)):
			c.failf("it is COMPLETED with %v, and s%d does not stand", got, i)
		}
	}
	if c.cancelled {
		c.failf("it is COMPLETED although a cancel had been acknowledged")
	}
}

// failed: whatever stands is named, and only what has no compensation.
func (c *chance) failed(notUndone []string) {
	for i := range c.n {
		named := slices.Contains(notUndone, fmt.Sprintf("s%d", i))
		switch {
		case c.stands[i] && !named:
			c.failf("it is FAILED, and s%d stands", i)
		case named && c.declares(i):
			c.failf("it is FAILED, and s%d was not undone", i)
		}
	}
}

// blocked has a reason, and a person leads the run out.
func (c *chance) blocked() {
	rec := c.record()
	at := rec.StepIndex(rec.CurrentStep)
	if at < 0 {
		c.failf("it is BLOCKED at %q", rec.CurrentStep)
		return
	}
	forwards := rec.EndsAs == ""
	if forwards && !c.once[at] && (c.pivot < 0 || at < c.pivot) {
		c.failf("it is BLOCKED at s%d, and the pivot is %d", at, c.pivot)
	}
	o, ctx := newSaga(c.t, c.definition(), c.store, saga.WithClock(c.clk)), c.t.Context()
	step, way := rec.CurrentStep, c.rng.IntN(3)
	var err error
	switch {
	case forwards && way == 0:
		c.refused[at], c.retried[at] = false, true
		err = o.Retry(ctx, c.key, "try again")
	case forwards && way == 1:
		c.stands[at] = true
		err = o.MarkDone(ctx, c.key, step, fmt.Sprint("r", at), "done by hand")
	case forwards:
		c.forced = true
		err = o.ForceCompensate(ctx, c.key, "enough")
	case way == 0:
		c.stands[at], c.closed[at] = false, true
		err = o.MarkCompensated(ctx, c.key, step, "undone by hand")
	default:
		err = o.Retry(ctx, c.key, "try again")
	}
	c.note("a person, at %s, forwards: %v, way %d: %v", step, forwards, way, err)
	if err != nil {
		c.failf("a person was refused: %v", err)
	}
}

// Whatever goes wrong, in whatever order: a completed run has every effect, a failed one none, no step is called once it
// is recorded as done nor on the way back, and every run comes to rest once the trouble ends. The variable
// TSUZUKI_TEST_SEEDS sets how many runs there are.
func TestPromisesHoldWhateverChanceBrings(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store := open()
		seeds := 2000
		if store.Capabilities().Durable {
			seeds = 150
		}
		if n, err := strconv.Atoi(os.Getenv("TSUZUKI_TEST_SEEDS")); err == nil {
			seeds = n
		}
		ends, people := map[state.Status]int{}, 0
		for seed := range uint64(seeds) {
			c := newChance(t, seed, clk, store)
			for !c.next() {
				if c.process > 60 {
					c.failf("it never comes to rest")
					break
				}
			}
			ends[c.record().Status]++
			people += min(c.people, 1)
			if t.Failed() {
				return
			}
		}
		require.Greater(t, people, seeds/100)
		for _, end := range []state.Status{state.StatusCompleted, state.StatusFailed, state.StatusReversed} {
			require.Greater(t, ends[end], seeds/100, "%s is hardly met: %v", end, ends)
		}
	})
}

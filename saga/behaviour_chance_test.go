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

	n, pivot  int // pivot is a position, or -1
	probes    []bool
	stands    []bool // the effect of a step
	closed    []bool // its key was made unusable
	refused   []bool // it says no for good, and always has
	cancelled bool   // a request was acknowledged before the pivot was done
	calmSince int    // processes from this on meet no more trouble
	process   int
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
	case rec.EndsAs != "":
		c.failf("s%d was called on the way back", i)
	case slices.ContainsFunc(rec.Steps[:i], func(s state.StepRecord) bool { return !s.Status.Finished() }):
		c.failf("s%d was called before its turn", i)
	}
	c.note(" do s%d", i)
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
	case c.pivot >= 0 && i <= c.pivot && c.stands[c.pivot] && rec.EndsAs == state.StatusFailed:
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
			Retry(steps.RetryPolicy{PerRun: 2}).CompensateRetry(steps.RetryPolicy{PerRun: 2})
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
			out = append(out, s.Output(r))
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
	c.stands, c.closed, c.refused, c.probes = make([]bool, c.n), make([]bool, c.n), make([]bool, c.n), make([]bool, c.n)
	for i := range c.n {
		c.refused[i] = c.rng.IntN(8) == 0
		c.probes[i] = c.rng.IntN(3) == 0
	}
	c.note("%d steps, pivot %d, probes %v, refused %v", c.n, c.pivot, c.probes, c.refused)
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
	got, err := o.Run(c.t.Context(), c.key, theOrder)
	c.note("process %d: run: %v %v", c.process, got, err)
	switch {
	case err == nil:
		c.completed(got)
	case errors.Is(err, saga.ErrFailed):
		c.failed()
	case errors.Is(err, saga.ErrBlocked):
		c.blocked()
	default:
		if c.rng.IntN(2) == 0 || c.calm() {
			c.clk.Advance(saga.DefaultLease + time.Second)
		}
		return false
	}
	return true
}

func (c *chance) completed(got []string) {
	for i := range c.n {
		if !c.stands[i] || got[i] != fmt.Sprint("r", i) {
			c.failf("it is COMPLETED with %v, and s%d does not stand", got, i)
		}
	}
	if c.cancelled {
		c.failf("it is COMPLETED although a cancel had been acknowledged")
	}
}

func (c *chance) failed() {
	for i := range c.n {
		if c.stands[i] {
			c.failf("it is FAILED, and s%d stands", i)
		}
	}
}

// blocked is right at and behind a pivot alone: no compensation here fails for good.
func (c *chance) blocked() {
	rec := c.record()
	if c.pivot < 0 || rec.Next() < c.pivot {
		c.failf("it is BLOCKED at s%d, and the pivot is %d", rec.Next(), c.pivot)
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
		ends := map[state.Status]int{}
		for seed := range uint64(seeds) {
			c := newChance(t, seed, clk, store)
			for !c.next() {
				if c.process > 60 {
					c.failf("it never comes to rest")
					break
				}
			}
			ends[c.record().Status]++
			if t.Failed() {
				return
			}
		}
		for _, end := range []state.Status{state.StatusCompleted, state.StatusFailed, state.StatusBlocked} {
			require.Greater(t, ends[end], seeds/100, "%s is hardly met: %v", end, ends)
		}
	})
}

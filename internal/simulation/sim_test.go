package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/internal/simulation/laws"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// verdict is what the scheduler lets happen at a point where a thread waits for it.
type verdict string

const (
	ok       verdict = "ok"
	fails    verdict = "a call fails"
	loses    verdict = "an answer is lost"
	late     verdict = "a write arrives late"
	dies     verdict = "a process dies"
	refuses  verdict = "a participant refuses"
	later    verdict = "a participant says later"
	panics   verdict = "a function panics"
	exits    verdict = "a function ends its goroutine"
	throttle verdict = "the store throttles"
	lapse    verdict = "a lease lapses"
	skew     verdict = "a clock jumps"
	leaves   verdict = "a caller leaves"
	cancel   verdict = "a cancel"
	reverse  verdict = "a reversal"
	people   verdict = "an operator"
	relay    verdict = "a relay at work"
	recovers verdict = "a recovery"
)

// faults are what may go wrong, in the order in which shrinking leaves them out.
var faults = []verdict{relay, recovers, skew, leaves, exits, panics, later, throttle, people, reverse, cancel, late, loses, refuses, fails, lapse, dies}

var errDead = errors.New("the process is dead")

// config is all that a run depends on.
type config struct {
	seed    uint64
	steps   int
	workers int
	events  int
	without []verdict
}

// command repeats the run.
func (c config) command() string {
	s := fmt.Sprintf("go test -run Simulation ./internal/simulation -seed %d -steps %d -workers %d -events %d", c.seed, c.steps, c.workers, c.events)
	if len(c.without) > 0 {
		var names []string
		for _, v := range c.without {
			names = append(names, string(v))
		}
		s += fmt.Sprintf(" -without '%s'", strings.Join(names, ","))
	}
	return s
}

// sim is one run of the simulation. One thread at a time is let go on, up to where it waits again.
type sim struct {
	cfg    config
	rng    *rand.Rand
	shapes shapes
	def    drive.Definition
	inner  *memory.Store
	clk    *simClock // the store's
	world  *participant
	book   *laws.Book
	runKey string
	ways   []*worker // the living ones, by slot
	healed bool      // nothing goes wrong any more

	mu      sync.Mutex
	waiting []*thread
	running int
	events  int
	met     map[verdict]int
	retries map[string]int // an operator's, by step
	arrived map[string]int
	lateOps []func()
	trace   []string
}

// thread is something that waits for the scheduler.
type thread struct {
	w      *worker
	what   string
	resume chan verdict
}

// worker is one process.
type worker struct {
	slot, life int
	clk        *simClock
	net        *sagatest.FaultyStore
	way        *laws.Store
	o          *saga.Orchestrator[int, []string]
	made       time.Duration // when the write that brought the present lease was sent, by the monotonic clock
	slow       int           // store calls that will be throttled
	dead       bool
	busy       bool
	leave      context.CancelFunc
}

var theKey = saga.Key{Tenant: "t", ID: "1"}

func newSim(cfg config) *sim {
	s := &sim{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.seed, 2)), shapes: randomShapes(rand.New(rand.NewPCG(cfg.seed, 1)), cfg.steps),
		clk: newClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), world: newParticipant(), runKey: "t#sim#1",
		met: map[verdict]int{}, retries: map[string]int{}, arrived: map[string]int{},
	}
	s.inner = memory.New(memory.WithClock(s.clk))
	s.def = s.define(nil).Snapshot()
	s.book = laws.NewBook(s.def)
	for slot := range 1 + s.rng.IntN(cfg.workers) {
		off := time.Duration(0)
		if s.may(skew) && s.rng.IntN(2) == 0 {
			off = time.Duration(s.rng.Int64N(int64(4*lease))) - 2*lease
		}
		s.ways = append(s.ways, s.born(slot, 0, newClock(s.clk.Now().Add(off))))
	}
	return s
}

// born starts a process on a machine's clock.
func (s *sim) born(slot, life int, clk *simClock) *worker {
	w := &worker{slot: slot, life: life, clk: clk}
	w.way = laws.Watch(s.inner, s.book, s.runKey)
	w.net = sagatest.NewFaultyStore(w.way).Always(func(sagatest.StoreCall) bool { return true }, func(ctx context.Context, c sagatest.StoreCall, send func(context.Context) error) error {
		return s.storeCall(ctx, w, c, send)
	})
	o, err := saga.New(s.define(w), w.net, saga.WithClock(clk), saga.WithLease(lease), saga.WithRecoverers(1), saga.WithInterceptor(func(ctx context.Context, c saga.Call, next func(context.Context) error) error {
		s.starts(w, c)
		return next(ctx)
	}))
	if err != nil {
		panic(err)
	}
	w.o = o
	return w
}

// may tells whether this can still go wrong.
func (s *sim) may(v verdict) bool { return !s.healed && !slices.Contains(s.cfg.without, v) }

// starts holds the start of a function against what its holder knows, and against its lease.
func (s *sim) starts(w *worker, c saga.Call) {
	s.note("%s of %s starts on %d.%d", c.Phase, c.Step, w.slot, w.life)
	s.book.MayStart(w.way.View(), c.Step, drive.Phase(c.Phase))
	s.mu.Lock()
	made := w.made
	s.mu.Unlock()
	if w.clk.Mono() >= made+lease && c.Phase == string(drive.Do) {
		s.book.Break("the %s of %s started %v after its lease had ended", c.Phase, c.Step, w.clk.Mono()-made-lease)
	}
}

func (s *sim) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// yield waits for the scheduler.
func (s *sim) yield(ctx context.Context, w *worker, what string) verdict {
	t := &thread{w: w, what: what, resume: make(chan verdict, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, t)
	s.mu.Unlock()
	v := <-t.resume
	if v == ok && ctx.Err() != nil && strings.HasPrefix(what, "do ") {
		return fails // an obedient client
	}
	return v
}

// storeCall is one call of the store over the network.
func (s *sim) storeCall(ctx context.Context, w *worker, c sagatest.StoreCall, send func(context.Context) error) error {
	var v verdict
	if c.Heartbeat() { // a lock is held: decided at once
		v = s.decide("heartbeat")
	} else {
		v = s.yield(ctx, w, "store "+c.Method)
	}
	made := w.clk.Mono()
	s.mu.Lock()
	if w.slow > 0 {
		w.slow--
		v = fails
	}
	s.mu.Unlock()
	if v == fails {
		return errors.New("throttled")
	}
	if v == late {
		s.mu.Lock()
		s.lateOps = append(s.lateOps, func() { _ = send(context.Background()) })
		s.mu.Unlock()
		return sagatest.ErrNoAnswer
	}
	err := send(ctx)
	if sagatest.Writes(c) && mine(c, err) {
		if c.Change == nil || c.Change.Owner != "" {
			s.mu.Lock()
			w.made = made
			s.mu.Unlock()
		}
		if c.Change != nil {
			s.note("%d.%d wrote %s %v", w.slot, w.life, c.Change.Status, stepsOf(c.Change))
		}
	}
	switch v {
	case loses:
		return sagatest.ErrNoAnswer
	case dies:
		s.crash(w)
	}
	return err
}

// mine tells whether the write was made, now or when it was sent before.
func mine(c sagatest.StoreCall, err error) bool {
	var refused *state.ConflictError
	if c.Change != nil && errors.As(err, &refused) && refused.Current != nil {
		return refused.Current.WriteID == c.Change.WriteID
	}
	return err == nil
}

func stepsOf(ch *state.Change) (out []string) {
	for _, st := range ch.Steps {
		out = append(out, fmt.Sprintf("%s=%s", st.Name, st.Status))
	}
	return out
}

// percent is how often something goes wrong at a point, by what waits there.
var percent = map[string][]struct {
	v verdict
	p int
}{
	"store":     {{fails, 3}, {loses, 4}, {late, 2}, {dies, 2}},
	"heartbeat": {{fails, 10}, {loses, 10}},
	"do":        {{fails, 5}, {refuses, 6}, {later, 2}, {panics, 1}, {dies, 3}},
	"did":       {{fails, 6}, {exits, 1}, {dies, 3}},
	"undo":      {{fails, 6}, {refuses, 2}, {panics, 1}, {dies, 3}},
	"undid":     {{fails, 6}, {dies, 3}},
	"probe":     {{fails, 8}, {dies, 2}},
}

func (s *sim) decide(what string) verdict {
	kind, _, _ := strings.Cut(what, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rng.IntN(100)
	for _, f := range percent[kind] {
		if n -= f.p; n < 0 {
			if s.may(f.v) {
				s.met[f.v]++
				return f.v
			}
			return ok
		}
	}
	return ok
}

// crash ends a process, and starts another in its place.
func (s *sim) crash(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.dead {
		return
	}
	w.dead = true
	w.net.Die()
	if s.ways[w.slot] == w {
		s.ways[w.slot] = s.born(w.slot, w.life+1, w.clk)
	}
}

// step lets one thing happen. False: nothing can.
func (s *sim) step() bool {
	synctest.Wait()
	s.events++
	var due []*simTimer
	soonest, timers := time.Duration(0), false
	for _, c := range s.clocks() {
		now, next, found := c.due()
		due = append(due, now...)
		if found && (!timers || next < soonest) {
			soonest, timers = next, true
		}
	}
	s.mu.Lock()
	slices.SortStableFunc(s.waiting, func(a, b *thread) int {
		return strings.Compare(fmt.Sprintf("%d.%03d %s", a.w.slot, a.w.life, a.what), fmt.Sprintf("%d.%03d %s", b.w.slot, b.w.life, b.what))
	})
	waiting := slices.Clone(s.waiting)
	s.mu.Unlock()
	switch n := len(waiting) + len(due); {
	case n == 0 && !timers:
		return false
	case n == 0:
		s.pass(soonest)
	default:
		if i := s.rng.IntN(n); i < len(waiting) {
			s.release(waiting[i])
		} else {
			due[i-len(waiting)].fire()
		}
	}
	return true
}

func (s *sim) release(t *thread) {
	v := s.decide(t.what)
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(o *thread) bool { return o == t })
	dead := t.w.dead
	s.mu.Unlock()
	if dead {
		v = dies // what a dead process has in flight does not land, or it would not have been stopped here
	} else if v == dies && !strings.HasPrefix(t.what, "store") {
		s.crash(t.w)
	}
	if v != ok {
		s.note("%s at %q of %d.%d", v, t.what, t.w.slot, t.w.life)
	}
	t.resume <- v
}

func (s *sim) clocks() []*simClock {
	out := []*simClock{s.clk}
	for _, w := range s.ways {
		out = append(out, w.clk)
	}
	return out
}

// pass lets time pass, for everyone.
func (s *sim) pass(d time.Duration) {
	for _, c := range s.clocks() {
		c.pass(d)
	}
}

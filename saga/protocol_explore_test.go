package saga_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// explorer plays one random interleaving of several workers on one run. Every write and every call of a step stops until
// the explorer decides what becomes of it, one at a time: it is made, its answer is lost, it lands later, it fails; the
// process dies; clocks lapse; a cancel comes. What must hold is looked at after each decision.
type explorer struct {
	t     *testing.T
	seed  uint64
	shape int
	rng   *rand.Rand
	inner *memory.Store
	now   time.Time // of a worker that starts

	mu      sync.Mutex // guards what follows: workers add to it
	pending []*act
	log     []string
	wrong   string

	workers   []*explored
	late      []lateCall
	applied   map[string]bool // the effect stands
	closed    map[string]bool // its key has no effect any more
	zombie    map[string]bool // the effect is of a call that had lost the run
	values    map[string]string
	calls     map[string]int
	retried   map[string]int
	cancelled bool
	forced    bool
	n         int
}

type lateCall struct {
	what string
	send func(context.Context) error
}

// explored is one worker, and its one call of Run.
type explored struct {
	*process[order, []string]
	name  string
	owner string // of its last take-up
	got   <-chan answered[[]string]
	over  bool
}

// act is a write or a call that waits for a decision.
type act struct {
	w      *explored
	what   string // "write", "do", "undo", "probe"
	step   string
	call   sagatest.StoreCall
	decide chan string
}

func (x *explorer) note(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log = append(x.log, fmt.Sprintf(format, args...))
}

// failf says what is wrong, wherever it was seen; the first word counts.
func (x *explorer) failf(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wrong == "" {
		x.wrong = fmt.Sprintf(format, args...)
	}
}

func (x *explorer) isWrong() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wrong != ""
}

// wait adds an act and brings what was decided about it.
func (x *explorer) wait(ctx context.Context, a *act) (string, error) {
	a.decide = make(chan string)
	x.mu.Lock()
	x.pending = append(x.pending, a)
	x.mu.Unlock()
	select {
	case d := <-a.decide:
		return d, nil
	case <-ctx.Done():
		x.drop(a)
		return "", context.Cause(ctx)
	}
}

func (x *explorer) drop(a *act) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pending = slices.DeleteFunc(x.pending, func(b *act) bool { return a == b })
}

func (x *explorer) record() *state.Record {
	rec, err := x.inner.Get(context.Background(), "t#chain#1")
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	require.NoError(x.t, err)
	return rec
}

// fault lets a write wait for a decision. Heartbeats are decided at once, since what is behind them waits for a lock.
func (x *explorer) fault(w *explored) sagatest.Fault {
	return func(ctx context.Context, c sagatest.StoreCall, send func(context.Context) error) error {
		var d string
		what := x.writeName(c)
		if c.Heartbeat() {
			d = []string{"made", "made", "lost", "late", "fails"}[x.rng.IntN(5)]
		} else {
			var err error
			if d, err = x.wait(ctx, &act{w: w, what: "write", call: c}); err != nil {
				return err
			}
		}
		switch d {
		case "made", "lost":
			err := send(ctx)
			x.note("%s: %s is %s: %v", w.name, what, d, shortly(err))
			if err == nil {
				switch {
				case c.Record != nil:
					w.owner = c.Record.Owner
				case sagatest.TakesUp(c):
					w.owner = c.Change.Owner
				}
			}
			if d == "lost" {
				return sagatest.ErrNoAnswer
			}
			return err
		case "late":
			x.note("%s: %s is under way", w.name, what)
			x.late = append(x.late, lateCall{w.name + "'s " + what, send})
		default:
			x.note("%s: %s fails", w.name, what)
		}
		return sagatest.ErrNoAnswer
	}
}

func shortly(err error) string {
	var c *state.ConflictError
	if errors.As(err, &c) {
		return "refused"
	}
	return fmt.Sprint(err)
}

func (x *explorer) writeName(c sagatest.StoreCall) string {
	if c.Record != nil {
		return "create"
	}
	if c.Heartbeat() {
		return "heartbeat"
	}
	text := string(c.Change.Status)
	if sagatest.TakesUp(c) {
		text = "take-up " + text
	}
	for _, s := range c.Change.Steps {
		text += fmt.Sprintf(" %s=%s", s.Name, s.Status)
		if s.Unknown {
			text += "?"
		}
	}
	return text
}

// definition is the saga as one worker runs it. Shape 0: two steps; 1: a pivot with a probe in the middle; 2: an at-most-
// once step in the middle; 3: a pivot that nobody can be asked about.
func (x *explorer) definition(w *explored) *saga.Definition[order, []string] {
	names := []string{"s1", "s2"}
	if x.shape > 0 {
		names = append(names, "s3")
	}
	var declared []steps.Declared[order]
	var typed []*steps.Step[order, string]
	for _, name := range names {
		s := steps.New(name, func(ctx context.Context, r *orderRun) (string, error) { return x.do(ctx, w, r) }).Retry(steps.RetryPolicy{PerRun: 2})
		if name != "s2" || x.shape == 0 || x.shape == 2 {
			s.Compensate(func(ctx context.Context, r *orderRun, did steps.Outcome[string]) error { return x.undo(ctx, w, r) }).CompensateRetry(once)
		}
		if name == "s2" {
			switch x.shape {
			case 1:
				s.Pivot().Probe(func(ctx context.Context, r *orderRun) (string, bool, error) { return x.probe(ctx, w, r) })
			case 2:
				s = steps.New(name, func(ctx context.Context, r *orderRun) (string, error) { return x.do(ctx, w, r) }).AtMostOnce().
					Compensate(func(ctx context.Context, r *orderRun, did steps.Outcome[string]) error { return x.undo(ctx, w, r) }).CompensateRetry(once).
					Probe(func(ctx context.Context, r *orderRun) (string, bool, error) { return x.probe(ctx, w, r) })
			case 3:
				s.Pivot()
			}
		}
		declared, typed = append(declared, s), append(typed, s)
	}
	return saga.Define("chain", func(_ context.Context, r *orderRun) ([]string, error) {
		var out []string
		for _, s := range typed {
			out = append(out, s.Output(r))
		}
		return out, nil
	}, declared...)
}

var errNoEffect = errors.New("no answer")

// do is a call of a step. The effect of a key that is closed does not come about.
func (x *explorer) do(ctx context.Context, w *explored, r *orderRun) (string, error) {
	x.starts(w, r.Step())
	d, err := x.wait(ctx, &act{w: w, what: "do", step: r.Step()})
	if err != nil {
		d = "transient" // the call was never made
	}
	x.note("%s: %s is %s", w.name, r.Step(), d)
	switch d {
	case "done", "unheard":
		if x.closed[r.Step()] {
			return "", steps.Permanent(errClosed)
		}
		x.applied[r.Step()] = true
		if rec := x.record(); rec.Owner != w.owner {
			x.zombie[r.Step()] = true
		}
		if d == "unheard" {
			return "", errNoEffect
		}
		x.n++
		return fmt.Sprintf("%s#%d", r.Step(), x.n), nil
	case "refused":
		return "", steps.Permanent(errRefuse)
	}
	return "", errNoEffect
}

// starts looks at the rules of a call that starts: its holder, if it still is the holder, never calls what is done.
func (x *explorer) starts(w *explored, step string) {
	x.calls[step]++
	rec := x.record()
	if rec == nil || rec.Owner != w.owner {
		return
	}
	if rec.Done(step) {
		x.failf("%s calls %s, which is DONE", w.name, step)
	}
	if rec.Status != state.StatusInProgress {
		x.failf("%s calls %s in a run that is %s", w.name, step, rec.Status)
	}
}

func (x *explorer) undo(ctx context.Context, w *explored, r *orderRun) error {
	d, err := x.wait(ctx, &act{w: w, what: "undo", step: r.Step()})
	if err != nil {
		d = "transient"
	}
	x.note("%s: undo of %s is %s", w.name, r.Step(), d)
	switch d {
	case "done", "unheard":
		x.applied[r.Step()], x.closed[r.Step()] = false, true
		if d == "unheard" {
			return errNoEffect
		}
		return nil
	case "refused":
		return steps.Permanent(errRefuse)
	}
	return errNoEffect
}

// probe asks the participant, who knows what has happened and not what is still under way.
func (x *explorer) probe(ctx context.Context, w *explored, r *orderRun) (string, bool, error) {
	d, err := x.wait(ctx, &act{w: w, what: "probe", step: r.Step()})
	if err != nil || d == "transient" {
		return "", false, errNoEffect
	}
	x.note("%s: probe of %s says %v", w.name, r.Step(), x.applied[r.Step()])
	if !x.applied[r.Step()] {
		return "", false, nil
	}
	return r.Step() + "#probed", true, nil
}

func (x *explorer) start() {
	w := &explored{name: string(rune('A' + len(x.workers)))}
	w.process = &process[order, []string]{clk: new(clock.Fake), net: sagatest.NewFaultyStore(x.inner)}
	w.clk.Set(x.now)
	w.clk.AutoAdvance()
	w.net.Always(sagatest.Writes, x.fault(w))
	w.o = newSaga(x.t, x.definition(w), w.net, saga.WithClock(w.clk))
	w.got = goRun(x.t.Context(), w.o)
	x.workers = append(x.workers, w)
	x.note("%s starts", w.name)
}

// step makes one decision.
func (x *explorer) step() {
	var live []*explored
	for _, w := range x.workers {
		if !w.over {
			live = append(live, w)
		}
	}
	switch roll := x.rng.IntN(100); {
	case len(live) == 0 || roll < 6 && len(live) < 3:
		x.start()
	case roll < 14:
		x.lapse()
	case roll < 18:
		w := live[x.rng.IntN(len(live))]
		w.clk.Advance(saga.DefaultLease / 3)
		x.note("%s: a third of a lease passes", w.name)
	case roll < 21:
		x.cancel()
	case roll < 25:
		x.kill(live[x.rng.IntN(len(live))])
	case roll < 32 && len(x.late) > 0:
		i := x.rng.IntN(len(x.late))
		call := x.late[i]
		x.late = slices.Delete(x.late, i, i+1)
		x.note("%s lands: %s", call.what, shortly(call.send(context.Background())))
	default:
		x.decide()
	}
}

func (x *explorer) decide() {
	x.mu.Lock()
	if len(x.pending) == 0 {
		x.mu.Unlock()
		return
	}
	a := x.pending[x.rng.IntN(len(x.pending))]
	x.mu.Unlock()
	x.drop(a)
	choices := map[string][]string{
		"write": {"made", "made", "made", "made", "made", "made", "lost", "late", "fails"},
		"do":    {"done", "done", "done", "done", "done", "unheard", "transient", "refused"},
		"undo":  {"done", "done", "done", "unheard", "transient", "refused"},
		"probe": {"asked", "asked", "asked", "transient"},
	}[a.what]
	a.decide <- choices[x.rng.IntN(len(choices))]
}

// lapse lets time pass for everybody but some, who are paused.
func (x *explorer) lapse() {
	x.now = x.now.Add(theLease)
	for _, w := range x.workers {
		if w.over || x.rng.IntN(2) == 0 {
			continue
		}
		w.clk.Advance(theLease)
		synctest.Wait()
	}
	x.note("leases lapse")
}

func (x *explorer) cancel() {
	err := x.inner.RequestCancel(context.Background(), "t#chain#1", state.CancelRequest{Reason: "no", At: x.now})
	if rec := x.record(); err == nil && rec.Pivot == "" && rec.Cancel != nil {
		x.cancelled = true
	}
	x.note("cancel: %v", shortly(err))
}

// kill ends a process. A call of it that is under way may still have its effect.
func (x *explorer) kill(w *explored) {
	x.note("%s dies", w.name)
	w.net.Die()
	x.release(w)
}

// release lets everything that a dead worker waits for go.
func (x *explorer) release(w *explored) {
	for {
		synctest.Wait()
		x.mu.Lock()
		i := slices.IndexFunc(x.pending, func(a *act) bool { return a.w == w })
		if i < 0 {
			x.mu.Unlock()
			return
		}
		a := x.pending[i]
		x.pending = slices.Delete(x.pending, i, i+1)
		x.mu.Unlock()
		d := "fails"
		if a.what != "write" {
			d = []string{"unheard", "transient"}[x.rng.IntN(2)]
		}
		a.decide <- d
	}
}

// look checks what must hold at every moment.
func (x *explorer) look() {
	for _, w := range x.workers {
		if w.over {
			continue
		}
		select {
		case got := <-w.got:
			w.over = true
			x.note("%s is told %v, %v", w.name, got.out, kindOf(got.err))
			x.answered(w, got)
		default:
		}
	}
	rec := x.record()
	if rec == nil {
		return
	}
	for _, s := range rec.Steps {
		if s.Status != state.StepDone || s.Output == nil {
			continue
		}
		if was, known := x.values[s.Name]; known && was != string(s.Output) {
			x.failf("the result of %s was %s and is %s", s.Name, was, s.Output)
		}
		x.values[s.Name] = string(s.Output)
		if !x.applied[s.Name] && rec.Status != state.StatusCompensating {
			x.failf("%s is DONE, and its effect is not there", s.Name)
		}
	}
	switch rec.Status {
	case state.StatusCompleted:
		x.completed(rec)
	case state.StatusFailed:
		x.failed(rec)
	}
	if x.shape == 2 && x.calls["s2"] > 1+x.retried["s2"] {
		x.failf("s2 was called %d times", x.calls["s2"])
	}
}

func (x *explorer) completed(rec *state.Record) {
	if x.cancelled {
		x.failf("COMPLETED although a cancel was acknowledged")
	}
	for _, s := range rec.Steps {
		if s.Status != state.StepDone || !x.applied[s.Name] {
			x.failf("COMPLETED, and %s is %s, its effect there: %v", s.Name, s.Status, x.applied[s.Name])
		}
	}
}

func (x *explorer) failed(rec *state.Record) {
	for _, s := range rec.Steps {
		if s.Name == rec.Pivot && x.zombie[s.Name] {
			continue // a probe can't know of a call under way, and nothing closes a pivot's key: as documented
		}
		if x.applied[s.Name] && !slices.Contains(rec.Failure.NotUndone, s.Name) {
			x.failf("FAILED, and the effect of %s stands unnamed", s.Name)
		}
		if s.Name == rec.Pivot && (x.applied[s.Name] || s.Status == state.StepDone || s.Unknown) && !x.forced {
			x.failf("went back over the pivot")
		}
	}
}

// answered checks what a worker was told against what is stored.
func (x *explorer) answered(w *explored, got answered[[]string]) {
	rec := x.record()
	switch {
	case got.err == nil:
		if rec == nil || rec.Status != state.StatusCompleted {
			x.failf("%s was told that the run is completed", w.name)
		}
	case errors.Is(got.err, saga.ErrFailed):
		if rec == nil || rec.Status != state.StatusFailed {
			x.failf("%s was told that the run has failed", w.name)
		}
	}
}

// settle ends all workers, and lets fresh ones without any fault bring the run to an end, with a person's help.
func (x *explorer) settle() {
	for _, w := range x.workers {
		if !w.over {
			x.kill(w)
		}
	}
	synctest.Wait()
	x.look()
	for _, call := range x.late {
		if x.rng.IntN(2) == 0 {
			x.note("%s lands at last: %s", call.what, shortly(call.send(context.Background())))
		}
	}
	x.late = nil
	for range 8 {
		if x.isWrong() {
			return
		}
		x.now = x.now.Add(theLease)
		x.person()
		x.start()
		w := x.workers[len(x.workers)-1]
		for !w.over {
			synctest.Wait()
			x.look()
			x.mu.Lock()
			pending := slices.Clone(x.pending)
			x.pending = nil
			x.mu.Unlock()
			for _, a := range pending {
				a.decide <- map[string]string{"write": "made", "do": "done", "undo": "done", "probe": "asked"}[a.what]
			}
		}
		if rec := x.record(); rec.Status.Ended() {
			return
		}
	}
	x.failf("the run does not come to an end: %s", x.record().Status)
}

// person leads a blocked run on.
func (x *explorer) person() {
	rec := x.record()
	if rec == nil || rec.Status != state.StatusBlocked {
		return
	}
	op, key := saga.NewOperator(x.inner), fullKey("chain")
	var err error
	verb := x.rng.IntN(3)
	switch {
	case verb == 0 && rec.EndsAs == "" && x.applied[rec.CurrentStep]:
		err = op.MarkDone(context.Background(), key, rec.CurrentStep, rec.CurrentStep+"#by hand", "")
		x.note("a person marks %s done", rec.CurrentStep)
	case verb == 1 && rec.EndsAs == "":
		err = op.ForceCompensate(context.Background(), key, "")
		x.forced = true
		x.note("a person sends it back")
	default:
		err = op.Retry(context.Background(), key, "")
		x.retried[rec.CurrentStep]++
		x.note("a person lets it try again")
	}
	require.NoError(x.t, err)
}

// explore plays one interleaving, and tells what was wrong with it.
func explore(t *testing.T, seed uint64) {
	t.Helper()
	storeClock := new(clock.Fake)
	x := &explorer{
		seed: seed, shape: int(seed % 4), rng: rand.New(rand.NewPCG(seed, 7)), inner: memory.New(memory.WithClock(storeClock)), now: storeClock.Now(),
		applied: map[string]bool{}, closed: map[string]bool{}, zombie: map[string]bool{}, values: map[string]string{}, calls: map[string]int{}, retried: map[string]int{},
	}
	synctest.Test(t, func(t *testing.T) {
		x.t = t
		x.play()
		for _, w := range x.workers {
			if !w.over {
				x.kill(w)
			}
		}
		time.Sleep(time.Second) // of the bubble's own time: what is idle ends
	})
	if x.wrong == "" {
		return
	}
	for i, l := range x.log {
		t.Logf("%3d %s", i+1, l)
	}
	t.Fatalf("seed %d, shape %d: %s\nreplay: TSUZUKI_EXPLORE_SEED=%d go test ./saga -run TestTheProtocolInRandomInterleavings", seed, x.shape, x.wrong, seed)
}

func (x *explorer) play() {
	for range 20 + x.rng.IntN(60) {
		x.step()
		synctest.Wait()
		x.look()
		if x.rng.IntN(10) == 0 {
			x.person()
		}
		if x.isWrong() {
			return
		}
		if rec := x.record(); rec != nil && rec.Status.Ended() && x.rng.IntN(3) == 0 {
			break
		}
	}
	x.settle()
}

// Random interleavings of several workers, each replayed by its seed.
func TestTheProtocolInRandomInterleavings(t *testing.T) {
	if text := os.Getenv("TSUZUKI_EXPLORE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		explore(t, seed)
		return
	}
	many := 400
	if text := os.Getenv("TSUZUKI_EXPLORE"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		many = n
	}
	first := uint64(time.Now().UnixNano())
	if os.Getenv("CI") == "" {
		first = 1
	}
	for seed := first; seed < first+uint64(many); seed++ {
		explore(t, seed)
	}
}

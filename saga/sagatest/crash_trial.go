package sagatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/internal/simulation/laws"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// trial is one run in a world of its own, with the faults that strike it.
type trial struct {
	lab     *lab
	strikes []strike
	rec     *Recorder
	book    *laws.Book

	cancelSoon bool // before the next process
	over       bool // the run has come to rest: nothing may be called any more
	last       error

	mu        sync.Mutex
	replays   bool // what is asked now is what came of it
	hit       int
	counts    map[string]int
	reached   []boundary
	hitAt     []int // how many boundaries had been reached at each strike
	cancelled bool  // a request was accepted
	late      []func(context.Context) error
	undos     map[string]bool // steps whose compensation was started
	hints     []string        // what may be behind it when a run does not come to rest
	arrived   map[string]string
}

func (l *lab) newTrial(strikes []strike) *trial {
	t := &trial{lab: l, strikes: strikes, rec: new(Recorder), book: laws.NewBook(l.def), counts: map[string]int{}, undos: map[string]bool{}, arrived: map[string]string{}}
	t.rec.lab = t
	return t
}

// reach is called at every boundary, and tells what happens there.
func (t *trial) reach(b boundary) fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.replays {
		return ""
	}
	t.counts[b.name]++
	if n := t.counts[b.name]; n > 1 {
		b.name = fmt.Sprintf("%s #%d", b.name, n)
	}
	t.reached = append(t.reached, b)
	if t.hit < len(t.strikes) && t.strikes[t.hit].at == b.name {
		t.hit++
		t.hitAt = append(t.hitAt, len(t.reached))
		return t.strikes[t.hit-1].fault
	}
	return ""
}

// missed tells whether the boundary of a strike was not reached.
func (t *trial) missed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hit < len(t.strikes)
}

func (t *trial) arrives(send func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = append(t.late, send)
}

func (t *trial) hint(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hints = append(t.hints, fmt.Sprintf(format, args...))
}

// starts holds the start of a function against the record as it is.
func (t *trial) starts(in *inCall) (known bool) {
	rec := t.book.Record()
	t.book.MayStart(rec, in.step, in.phase)
	if t.over {
		t.book.Break("the %s of %s was called although the run had come to rest", in.phase, in.step)
	}
	t.lab.called(in.phase, in.step)
	t.mu.Lock()
	defer t.mu.Unlock()
	if in.phase == drive.Undo {
		t.undos[in.step] = true
	}
	if rec == nil {
		return false
	}
	s, _ := rec.Step(in.step)
	return s.Output != nil
}

// ends looks at how a function ended.
func (t *trial) ends(in *inCall, err error) {
	if err != nil && in.phase == drive.Undo && !in.known {
		t.hint("the compensation of %s failed when nobody knew whether the step had happened (Known == false): look at did.Known before did.Output, and undo by did.Key", in.step)
	}
}

// panicked tells what a panic of the user's function means.
func (t *trial) panicked(in *inCall, v any) {
	if missing, ok := v.(*drive.NoOutput); ok {
		t.hint("the %s of %s read a result that is not there: %v", in.phase, in.step, missing)
		return
	}
	t.hint("the %s of %s panicked: %v", in.phase, in.step, v)
	if in.phase == drive.Undo && !in.known {
		t.hint("its step was undone while nobody knew whether it had happened (Known == false): look at did.Known before did.Output, and undo by did.Key")
	}
}

// call is [recorderLab]'s.
func (t *trial) call(ctx context.Context, after bool) error {
	in := callOf(ctx)
	if in == nil {
		return nil
	}
	if in.p.dead.Load() {
		return ErrDead
	}
	n := in.n.Load()
	if !after {
		n = in.n.Add(1)
	}
	f := t.reach(boundary{whose(after, fmt.Sprintf("call %d of %s %s", n, in.phase, in.step)), atCall, after})
	switch {
	case in.p.happens(ctx, f):
	case f == fails:
		return errNoParticipant
	case f == lost:
		return errLostCall
	}
	if in.p.dead.Load() {
		return ErrDead
	}
	return nil
}

// noted is [recorderLab]'s.
func (t *trial) noted(ctx context.Context, key string, content any) {
	in := callOf(ctx)
	c := notedCall{key: key}
	if in != nil {
		c.step, c.phase, c.known, c.n = in.step, in.phase, in.known, int(in.n.Load())
	}
	if of, undo := content.(undoOf); undo {
		c.content = string(of)
	} else {
		raw, err := json.Marshal(content)
		if err != nil {
			raw = fmt.Appendf(nil, "%#v", content)
		}
		c.content = string(raw)
	}
	if wrong := t.lab.note(c); wrong != "" {
		t.book.Break("%s", wrong)
	}
}

// wrong is [recorderLab]'s.
func (t *trial) wrong(_ context.Context, format string, args ...any) { t.book.Break(format, args...) }

// now is [recorderLab]'s.
func (t *trial) now() time.Time { return t.lab.world.Now() }

// cancel asks for the run to be undone, as an operator does.
func (t *trial) cancel(ctx context.Context) {
	store := laws.Watch(t.lab.store, t.book, t.lab.runKey)
	err := store.RequestCancel(context.WithoutCancel(ctx), t.lab.runKey, state.CancelRequest{Reason: "sagatest", At: t.lab.world.Now()})
	rec := t.book.Record()
	switch {
	case err == nil:
		t.mu.Lock()
		t.cancelled = t.cancelled || rec.Cancel != nil
		t.mu.Unlock()
	case !errors.Is(err, state.ErrNotAllowed) && !errors.Is(err, state.ErrNotFound):
		t.book.Break("the store could not take a cancel request: %v", err)
	}
}

// takeOver lets another process take the run up and bring it to rest, while p waits. Then p goes on, and its clock shows
// what time it is.
func (t *trial) takeOver(ctx context.Context, p *process) {
	now := p.clk.Now().Add(t.lab.lease + time.Second)
	end := t.settle(context.WithoutCancel(ctx), t.newProcess(now), runner.run)
	p.clk.Advance(max(end.Sub(p.clk.Now()), t.lab.lease) + time.Second)
}

const mostProcesses = 60

// settle takes the run up, by one process after the other, until it rests. It returns the time.
func (t *trial) settle(ctx context.Context, p *process, act func(runner, context.Context) error) time.Time {
	for range mostProcesses {
		err := act(p.saga, ctx)
		t.last = err
		if rests(err) {
			return p.clk.Now()
		}
		wait := t.lab.lease
		var is *saga.Error
		if errors.As(err, &is) {
			wait = max(wait, is.RetryAfter)
		}
		if t.cancelSoon {
			t.cancelSoon = false
			t.cancel(ctx)
		}
		p = t.newProcess(p.clk.Now().Add(wait + time.Second))
	}
	return p.clk.Now()
}

func rests(err error) bool {
	return err == nil || errors.Is(err, saga.ErrFailed) || errors.Is(err, saga.ErrBlocked) || errors.Is(err, saga.ErrReversed) ||
		errors.Is(err, saga.ErrNotAllowed) || hopeless(err)
}

// hopeless tells of errors that trying again does not change.
func hopeless(err error) bool {
	for _, kind := range []error{saga.ErrPayloadMismatch, saga.ErrDefinitionChanged, saga.ErrInvalidKey, saga.ErrInvalidInput, saga.ErrTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// play runs the whole of it: to rest, the messages out, what is late, and a replay.
func (t *trial) play(ctx context.Context, reverse bool) {
	now := t.settle(ctx, t.newProcess(t.lab.world.Now()), runner.run)
	if reverse && t.last == nil {
		now = t.settle(ctx, t.newProcess(now), runner.reverse)
	}
	t.over = true
	for _, send := range t.late {
		_ = send(context.WithoutCancel(ctx))
	}
	t.deliver(ctx)
	t.mu.Lock()
	t.replays = true
	t.mu.Unlock()
	came := t.last
	again := t.newProcess(now.Add(t.lab.lease + time.Second)).saga.run(ctx)
	if rests(came) && !reverse && fmt.Sprint(came) != fmt.Sprint(again) && !sameStored(came, again) {
		t.book.Break("the same request again gave %v, not %v", again, came)
	}
}

// sameStored tells whether two answers are the same kind of end: a live failure and its stored form read differently.
func sameStored(a, b error) bool {
	var x, y *saga.Error
	return errors.As(a, &x) && errors.As(b, &y) && errors.Is(x.Kind, y.Kind) && x.Code == y.Code
}

// deliver empties the outbox as relays do, one after the other when they die.
func (t *trial) deliver(ctx context.Context) {
	const lease = time.Minute
	for range mostProcesses {
		batches, err := t.lab.store.Claim(ctx, 16, lease)
		if err != nil {
			t.book.Break("the outbox can't be claimed: %v", err)
			return
		}
		due := false
		for _, b := range batches {
			if b.RunKey == t.lab.runKey {
				due = true
				t.publish(ctx, b)
			}
		}
		if !due {
			return
		}
		t.lab.passes(t.lab.world.Now().Add(2 * lease))
	}
	t.book.Break("the outbox does not become empty")
}

// publish is one relay at work on one batch, until it dies.
func (t *trial) publish(ctx context.Context, b outbox.Batch) {
	for _, m := range b.Messages {
		id := m.ID[min(len(m.ID), len(t.lab.runKey)+1):]
		if t.reach(boundary{whose(false, "publish "+id), atMessage, false}) != "" {
			return
		}
		t.arrive(m)
		if t.reach(boundary{whose(true, "publish "+id), atMessage, true}) != "" {
			return
		}
		if err := laws.Watch(t.lab.store, t.book, t.lab.runKey).Sent(ctx, b, []string{m.ID}); err != nil {
			t.book.Break("message %s can't be removed: %v", m.ID, err)
		}
	}
}

func (t *trial) arrive(m outbox.Message) {
	content := fmt.Sprintf("%s %s %s %s %s", m.Topic, m.Key, m.Type, m.ContentType, m.Body)
	if had, again := t.arrived[m.ID]; again && had != content {
		t.book.Break("message %s arrived twice, with different content", m.ID)
	}
	t.arrived[m.ID] = content
	if wrong := t.lab.sameMessage(m.ID, content); wrong != "" {
		t.book.Break("%s", wrong)
	}
}

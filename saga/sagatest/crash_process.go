package sagatest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/internal/simulation/laws"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// runner is an orchestrator with its types erased.
type runner interface {
	run(ctx context.Context) error
	reverse(ctx context.Context) error
}

type typed[In, Out any] struct {
	o   *saga.Orchestrator[In, Out]
	key saga.Key
	in  In
}

func (r typed[In, Out]) run(ctx context.Context) error {
	_, err := r.o.Run(ctx, r.key, r.in)
	return err
}

func (r typed[In, Out]) reverse(ctx context.Context) error {
	return r.o.Reverse(ctx, r.key, "sagatest")
}

// process is one process in a trial: its own clock, its own way to the store, its own orchestrator of a definition that
// was made for it.
type process struct {
	t    *trial
	clk  *clock.Fake
	net  *FaultyStore
	saga runner
	dead atomic.Bool
}

func (t *trial) newProcess(now time.Time) *process {
	p := &process{t: t, clk: new(clock.Fake)}
	p.clk.AutoAdvance()
	p.clk.Set(now)
	t.lab.passes(now)
	p.net = NewFaultyStore(laws.Watch(t.lab.store, t.book, t.lab.runKey))
	p.net.Always(func(c StoreCall) bool { return Writes(c) && !c.Heartbeat() }, p.write)
	opts := append([]saga.Option{saga.WithInterceptor(p.intercept)}, t.lab.cfg.options...) // the lab's is the outermost
	var err error
	if p.saga, err = t.lab.open(t.rec, p.net, append(opts, saga.WithClock(p.clk))); err != nil {
		t.lab.t.Fatalf("sagatest: a further call of the constructor gave a definition that does not work: %v", err)
	}
	return p
}

// die ends the process: nothing of what it does from now on reaches anything.
func (p *process) die() {
	p.dead.Store(true)
	p.net.Die()
}

// goAway takes the store from the process, for good.
func (p *process) goAway() {
	p.net.Clear()
	p.net.Always(func(StoreCall) bool { return true }, Fail(ErrNoAnswer))
}

var (
	errNoParticipant = errors.New("sagatest: the participant can't be reached")
	errLostCall      = errors.New("sagatest: the participant's answer was lost")
)

// happens lets the fault happen that is the same wherever it strikes; false: it is none of those.
func (p *process) happens(ctx context.Context, f fault) bool {
	switch f {
	case dies:
		p.die()
	case diesCancel:
		p.die()
		p.t.cancelSoon = true
	case cancels:
		p.t.cancel(ctx)
	case takenOver:
		p.t.takeOver(ctx, p)
	default:
		return false
	}
	return true
}

// write is what becomes of a write of this process.
func (p *process) write(ctx context.Context, c StoreCall, send func(context.Context) error) error {
	name := "write " + writeName(c)
	switch f := p.t.reach(boundary{whose(false, name), atWrite, false}); {
	case p.happens(ctx, f):
	case f == fails:
		return ErrNoAnswer
	case f == goesAway:
		p.goAway()
		return ErrNoAnswer
	case f == arrives:
		p.goAway()
		p.t.arrives(send)
		return ErrNoAnswer
	}
	if p.dead.Load() {
		return ErrDead
	}
	err := send(ctx)
	switch f := p.t.reach(boundary{whose(true, name), atWrite, true}); {
	case p.happens(ctx, f):
	case f == lost:
		return ErrNoAnswer
	case f == goesAway:
		p.goAway()
		return ErrNoAnswer
	}
	return err
}

// inCall is what the context of a function under the lab knows.
type inCall struct {
	p     *process
	step  string
	phase drive.Phase
	known bool // for a compensation: the step's result is recorded
	n     atomic.Int32
}

type inCallKey struct{}

func callOf(ctx context.Context) *inCall {
	in, _ := ctx.Value(inCallKey{}).(*inCall)
	return in
}

// stepOf is the step whose function has this context, and whether its result is known.
func stepOf(ctx context.Context) (step string, known bool) {
	if in := callOf(ctx); in != nil {
		return in.step, in.known
	}
	return "", true
}

// intercept is around every function of this process.
func (p *process) intercept(ctx context.Context, c saga.Call, next func(context.Context) error) error {
	if p.dead.Load() {
		return ErrDead
	}
	name := c.Phase + " " + c.Step
	in := &inCall{p: p, step: c.Step, phase: drive.Phase(c.Phase)}
	in.known = p.t.starts(in)
	switch f := p.t.reach(boundary{whose(false, name), atFunction, false}); {
	case p.happens(ctx, f):
	case f == fails:
		return errNoParticipant
	}
	if p.dead.Load() {
		return ErrDead
	}
	defer func() {
		if v := recover(); v != nil {
			p.t.panicked(in, v)
			panic(v)
		}
	}()
	err := next(context.WithValue(ctx, inCallKey{}, in))
	if p.dead.Load() {
		return ErrDead
	}
	p.t.ends(in, err)
	switch f := p.t.reach(boundary{whose(true, name), atFunction, true}); {
	case p.happens(ctx, f):
	case f == lost:
		return errLostCall
	}
	if p.dead.Load() {
		return ErrDead
	}
	return err
}

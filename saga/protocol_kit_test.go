package saga_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// process is one worker: a clock of its own, which stands still but for the library's own sleeps, and a view of the store
// of its own, which the test scripts.
type process[In, Out any] struct {
	clk *clock.Fake
	net *sagatest.FaultyStore
	o   *saga.Orchestrator[In, Out]
}

// newProcess starts a worker whose clock shows the time of world.
func newProcess[In, Out any](t *testing.T, world *clock.Fake, store state.Store, d *saga.Definition[In, Out], opts ...saga.Option) *process[In, Out] {
	t.Helper()
	p := &process[In, Out]{clk: new(clock.Fake), net: sagatest.NewFaultyStore(store)}
	p.clk.Set(world.Now())
	p.clk.AutoAdvance()
	p.o = newSaga(t, d, p.net, append([]saga.Option{saga.WithClock(p.clk)}, opts...)...)
	return p
}

// answered is what came of a call of Run.
type answered[Out any] struct {
	out Out
	err error
}

// goRun runs theOrder beside the test.
func goRun[Out any](ctx context.Context, o *saga.Orchestrator[order, Out]) <-chan answered[Out] {
	got := make(chan answered[Out], 1)
	go func() {
		out, err := o.Run(ctx, theKey, theOrder)
		got <- answered[Out]{out, err}
	}()
	return got
}

// within is what the channel brings, in good time.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

// stop is a place where a function stops until the test lets it go on. Only the first call stops.
type stop struct {
	reached, gone chan struct{}
	once, free    sync.Once
}

func newStop(t *testing.T) *stop {
	t.Helper()
	s := &stop{reached: make(chan struct{}), gone: make(chan struct{})}
	t.Cleanup(s.release) // whatever the test says, nothing is left behind
	return s
}

func (s *stop) here() {
	s.once.Do(func() {
		close(s.reached)
		<-s.gone
	})
}

func (s *stop) release() { s.free.Do(func() { close(s.gone) }) }

// hook stops a step, whatever its context says.
func (s *stop) hook(context.Context, *orderRun) error {
	s.here()
	return nil
}

// theLease is a moment after the end of every lease that is renewed now.
const theLease = saga.DefaultLease + time.Second

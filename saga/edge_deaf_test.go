package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// deaf is a function that doesn't hear that its context has ended.
type deaf struct {
	*stop
	heard chan struct{} // closed when the context has ended, for the test to go by
}

func newDeaf(t *testing.T) *deaf {
	t.Helper()
	return &deaf{newStop(t), make(chan struct{})}
}

// hook goes on whatever happens, the first time that it is called.
func (d *deaf) hook(ctx context.Context, _ *orderRun) error {
	d.once.Do(func() {
		close(d.reached)
		go func() {
			<-ctx.Done()
			close(d.heard)
		}()
		<-d.gone
	})
	return nil
}

// moving lets the clock run, in small steps so that leases are renewed, until the channel brings something.
func moving[T any](t *testing.T, clk *clock.Fake, store state.Store, c <-chan T) T {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case v := <-c:
			return v
		case <-time.After(time.Millisecond):
			clk.Advance(saga.DefaultLease / 200)
		}
	}
	require.Fail(t, "nothing came")
	panic("unreachable")
}

// givenUp tells that a function that was given up left the run as the rules say: nothing written, the lease left to lapse,
// nobody of this process near it while the function is still at work, and somebody of another one once it lapsed.
func givenUp(t *testing.T, clk *clock.Fake, a *process[order, []string], store state.Store, err error, step string, status state.Status) {
	t.Helper()
	e := sagaError(t, err, saga.ErrInterrupted)
	require.Equal(t, step, e.Step)
	require.Positive(t, e.RetryAfter)
	rec := recordOf(t, store, theKey, "chain")
	require.Equal(t, status, rec.Status)
	require.NotEmpty(t, rec.Owner, "the lease is left to lapse")
	clk.Advance(2 * theLease)
	_, err = a.o.Run(t.Context(), theKey, theOrder)
	sagaError(t, err, saga.ErrInProgress)
	got, err := saga.Recover(t.Context(), a.o)
	require.NoError(t, err)
	require.Equal(t, saga.Recovered{Lost: 1}, got)
}

// untilLetGo tries until the process lets go of the function that has come to its end.
func untilLetGo(t *testing.T, o *saga.Orchestrator[order, []string]) (out []string, err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, err = o.Run(t.Context(), theKey, theOrder)
		return !errors.Is(err, saga.ErrInProgress)
	}, 10*time.Second, time.Millisecond)
	return out, err
}

// newRunning is a process on a clock that only the test moves.
func newRunning(t *testing.T, world *clock.Fake, store state.Store, d *saga.Definition[order, []string], opts ...saga.Option) *process[order, []string] {
	t.Helper()
	a := newProcess(t, world, store, d, opts...)
	a.clk = new(clock.Fake)
	a.clk.Set(world.Now())
	a.o = newSaga(t, d, a.net, append([]saga.Option{saga.WithClock(a.clk)}, opts...)...)
	return a
}

func TestADeafStepIsGivenUpAfterALease(t *testing.T) {
	timeout := func(_ int, s *steps.Step[order, voucher]) { s.Timeout(time.Second) }
	for name, c := range map[string]struct {
		declare func(int, *steps.Step[order, voucher])
		gone    bool // the caller goes
	}{"a timeout": {timeout, false}, "a cancelled caller": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d := newDeaf(t)
				a := newRunning(t, world, store, chain{p: p, declare: c.declare, after: at("s2", d.hook)}.of(3))
				got := goRun(ctx, a.o)
				within(t, d.reached)
				if c.gone {
					cancel()
				}
				moving(t, a.clk, store, d.heard)
				heard := a.clk.Mono()
				err := moving(t, a.clk, store, got).err
				require.GreaterOrEqual(t, a.clk.Mono()-heard, saga.DefaultLease-saga.DefaultLease/100)
				givenUp(t, a.clk, a, store, err, "s2", state.StatusInProgress)
				d.release()
				a.clk.AutoAdvance()
				out, err := untilLetGo(t, a.o)
				require.NoError(t, err)
				require.Equal(t, []string{"s1-1", "s2-2", "s3-3"}, out)
				require.Equal(t, []string{"s1", "s2", "s2", "s3"}, p.seen(), "what it returned late is dropped")
			})
		})
	}
}

// An answer that comes within that lease counts.
func TestADeafStepsAnswerWithinALeaseCounts(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		d := newDeaf(t)
		a := newRunning(t, world, store, chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) { s.Timeout(time.Second) }, after: at("s1", d.hook)}.of(2))
		got := goRun(t.Context(), a.o)
		within(t, d.reached)
		moving(t, a.clk, store, d.heard)
		end := a.clk.Mono() + saga.DefaultLease*8/10
		for a.clk.Mono() < end {
			a.clk.Advance(saga.DefaultLease / 200)
			require.Eventually(t, func() bool { // until the heartbeat that may be due is made
				a.clk.Advance(time.Millisecond)
				return recordOf(t, store, theKey, "chain").LeaseUntil.Sub(a.clk.Now()) > saga.DefaultLease/3
			}, 10*time.Second, time.Millisecond)
		}
		d.release()
		require.NoError(t, moving(t, a.clk, store, got).err)
		require.Equal(t, []string{"s1", "s2"}, p.seen())
	})
}

// With a deadline the function is not waited for beyond it less the margin, so that the caller hears in time.
func TestADeafStepIsNotWaitedForBeyondTheDeadline(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		d := newDeaf(t)
		a := newProcess(t, world, store, chain{p: p, after: at("s1", d.hook)}.of(2), saga.WithMargin(1500*time.Millisecond))
		_, err := a.o.Run(ctx, theKey, theOrder)
		require.NoError(t, ctx.Err(), "there was time to say so")
		givenUp(t, a.clk, a, store, err, "s1", state.StatusInProgress)
		d.release()
		_, err = untilLetGo(t, a.o)
		require.NoError(t, err)
	})
}

// The caller's going does not end the undo at hand; its Timeout does.
func TestADeafCompensationIsGivenUpAfterALease(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		d := newDeaf(t)
		a := newRunning(t, world, store, chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) { s.Timeout(time.Second) },
			before: at("s2", failing(steps.Permanent(errRefuse))), afterUndo: d.hook}.of(2))
		got := goRun(t.Context(), a.o)
		within(t, d.reached)
		givenUp(t, a.clk, a, store, moving(t, a.clk, store, got).err, "s1", state.StatusCompensating)
		d.release()
		a.clk.AutoAdvance()
		_, err := untilLetGo(t, a.o)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, []string{"s1", "undo s1 known", "undo s1 known"}, p.seen())
	})
}

func TestADeafProbeIsGivenUpAfterALease(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p, store := new(participant), open()
			interruptedAt(t, p, store, world)
			d := newDeaf(t)
			a := newRunning(t, world, store, chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
				s.Timeout(time.Second).Probe(func(ctx context.Context, r *orderRun) (voucher, bool, error) {
					return voucher{}, false, d.hook(ctx, r)
				})
			}}.of(2))
			status := state.StatusInProgress
			if backwards {
				require.NoError(t, saga.NewOperator(store).Cancel(t.Context(), saga.Key{Tenant: "t", Operation: "chain", ID: "1"}, "no"))
				status = state.StatusCompensating
			}
			got := goRun(t.Context(), a.o)
			within(t, d.reached)
			givenUp(t, a.clk, a, store, moving(t, a.clk, store, got).err, "s2", status)
			d.release()
			a.clk.AutoAdvance()
			_, err := untilLetGo(t, a.o)
			require.Equal(t, backwards, errors.Is(err, saga.ErrFailed), "%v", err)
		})
	}
}

// An interceptor is waited for like the call that it is around.
func TestADeafInterceptorIsGivenUpAfterALease(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := newDeaf(t)
		a := newRunning(t, world, store, chain{p: p}.of(2), saga.WithInterceptor(func(ctx context.Context, c saga.Call, next func(context.Context) error) error {
			if c.Step == "s2" {
				_ = d.hook(ctx, nil)
			}
			return next(ctx)
		}))
		got := goRun(ctx, a.o)
		within(t, d.reached)
		cancel()
		givenUp(t, a.clk, a, store, moving(t, a.clk, store, got).err, "s2", state.StatusInProgress)
		d.release()
		a.clk.AutoAdvance()
		_, err := untilLetGo(t, a.o)
		require.NoError(t, err)
	})
}

// A result function that never ends leaves the steps done: only the result is worked out again.
func TestADeafResultFunctionLeavesTheStepsDone(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := newDeaf(t)
		step := steps.New("only", func(_ context.Context, r *orderRun) (voucher, error) { return p.do("only", r.IdempotencyKey()), nil })
		def := saga.Define("chain", func(ctx context.Context, r *orderRun) ([]string, error) {
			return []string{step.Output(r).ID}, d.hook(ctx, r)
		}, step)
		a := newRunning(t, world, store, def)
		got := goRun(ctx, a.o)
		within(t, d.reached)
		cancel()
		sagaError(t, moving(t, a.clk, store, got).err, saga.ErrInterrupted)
		rec := recordOf(t, store, theKey, "chain")
		require.Equal(t, state.StatusInterrupted, rec.Status)
		require.Equal(t, "DONE", stepStatuses(rec))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInProgress)
		d.release()
		a.clk.AutoAdvance()
		out, err := untilLetGo(t, a.o)
		require.NoError(t, err)
		require.Equal(t, []string{"only-1"}, out)
		require.Equal(t, []string{"only"}, p.seen())
	})
}

// A When has no context to hear, and is waited for like the rest once the caller has gone. Nothing is decided then: the
// step before it was not recorded either, and is called again.
func TestADeafWhenDoesNotHoldItsCaller(t *testing.T) {
	for step, calls := range map[string][]string{"s1": {"s1", "s2"}, "s2": {"s1", "s1", "s2"}} {
		t.Run(step, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := newStop(t)
				a := newRunning(t, world, store, chain{p: p, declare: func(_ int, s *steps.Step[order, voucher]) {
					if s.Name() == step {
						s.When(func(*orderRun) bool { w.here(); return true })
					}
				}}.of(2))
				got := goRun(ctx, a.o)
				within(t, w.reached)
				cancel()
				require.Equal(t, step, sagaError(t, moving(t, a.clk, store, got).err, saga.ErrInterrupted).Step)
				w.release()
				a.clk.Advance(2 * theLease)
				a.clk.AutoAdvance()
				_, err := untilLetGo(t, a.o)
				require.NoError(t, err)
				require.Equal(t, calls, p.seen())
			})
		})
	}
}

package saga_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// gun is a saga of one step that can be undone, and one that must never be called twice.
type gun struct {
	p    *participant
	fire func(ctx context.Context, r *orderRun) error
	// probe is what the outside says of the shot; nil: there is no Probe.
	probe func() (voucher, bool, error)
	pivot bool
	// undo of the shot is declared.
	undo bool
	// loaded, if set, decides about a step behind the shot.
	loaded func(*orderRun) bool
}

func (g gun) saga() *saga.Definition[order, string] {
	aim := steps.Do("aim", func(_ context.Context, r *orderRun) error { g.p.do("aim", r.IdempotencyKey()); return nil }).
		Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[steps.None]) error {
			g.p.undo("aim", did.Known, r.IdempotencyKey())
			return nil
		})
	fire := steps.New("fire", func(ctx context.Context, r *orderRun) (voucher, error) {
		v := g.p.do("fire", r.IdempotencyKey())
		return v, hooked(ctx, r, g.fire)
	}).AtMostOnce()
	if g.probe != nil {
		fire.Probe(func(context.Context, *orderRun) (voucher, bool, error) { return g.probe() })
	}
	if g.pivot {
		fire.Pivot()
	}
	if g.undo {
		fire.Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[voucher]) error {
			g.p.undo("fire", did.Known, r.IdempotencyKey())
			return nil
		})
	}
	clean := steps.Do("clean", func(_ context.Context, r *orderRun) error { g.p.do("clean", r.IdempotencyKey()); return nil })
	if g.loaded != nil {
		clean.When(g.loaded)
	}
	return saga.Define("gun", func(_ context.Context, r *orderRun) (string, error) { return fire.Output(r).ID, nil }, aim, fire, clean)
}

func hit() (voucher, bool, error)    { return voucher{"hit"}, true, nil }
func missed() (voucher, bool, error) { return voucher{}, false, nil }

// Every way in which the one call can end, with and without somebody to ask.
func TestAnAtMostOnceStepIsCalledOnceInEveryOutcome(t *testing.T) {
	type want struct {
		kind   error
		code   string
		status state.Status
		steps  string
		calls  []string
	}
	blocked := want{saga.ErrBlocked, saga.CodeUnresolved, state.StatusBlocked, "DONE STARTED PENDING", []string{"aim", "fire"}}
	completed := want{nil, "", state.StatusCompleted, "DONE DONE DONE", []string{"aim", "fire", "clean"}}
	unclear := map[string]func(context.Context, *orderRun) error{
		"error":   failing(errors.New("no answer")),
		"delay":   failing(steps.RetryAfter(time.Second, nil)),
		"panic":   func(context.Context, *orderRun) error { panic("oh") },
		"goexit":  func(context.Context, *orderRun) error { runtime.Goexit(); return nil },
		"timeout": failing(context.DeadlineExceeded),
	}
	type tc struct {
		gun  gun
		want want
	}
	cases := map[string]tc{
		"done": {gun{}, completed},
		"refused": {gun{fire: failing(steps.Permanent(errRefuse)), undo: true},
			want{saga.ErrFailed, "", state.StatusFailed, "COMPENSATED PENDING PENDING", []string{"aim", "fire", "undo aim known"}}},
		"refused, with a probe": {gun{fire: failing(steps.Permanent(errRefuse)), probe: hit},
			want{saga.ErrFailed, "", state.StatusFailed, "COMPENSATED PENDING PENDING", []string{"aim", "fire", "undo aim known"}}},
		"refused as a pivot": {gun{fire: failing(steps.Permanent(errRefuse)), pivot: true},
			want{saga.ErrFailed, "", state.StatusFailed, "COMPENSATED PENDING PENDING", []string{"aim", "fire", "undo aim known"}}},
	}
	for name, fire := range unclear {
		cases[name+", nobody to ask"] = tc{gun{fire: fire}, blocked}
		cases[name+", it hit"] = tc{gun{fire: fire, probe: hit}, completed}
		cases[name+", it missed"] = tc{gun{fire: fire, probe: missed}, blocked}
		cases[name+" as a pivot, nobody to ask"] = tc{gun{fire: fire, pivot: true}, blocked}
		cases[name+" as a pivot, it missed"] = tc{gun{fire: fire, pivot: true, probe: missed}, blocked}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
				g, store := c.gun, open()
				g.p = new(participant)
				o := newSaga(t, g.saga(), store, saga.WithClock(clk))
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					if c.want.kind == nil {
						require.NoError(t, err)
					} else {
						e := sagaError(t, err, c.want.kind)
						require.Equal(t, "fire", e.Step)
						require.Equal(t, c.want.code, e.Code)
					}
				}
				rec := recordOf(t, store, theKey, "gun")
				require.Equal(t, c.want.status, rec.Status)
				require.Equal(t, c.want.steps, stepStatuses(rec))
				require.Equal(t, c.want.calls, g.p.seen())
			})
		})
	}
}

// The process dies around the one call: before its mark it never started, and behind the mark nobody knows.
func TestADeathAroundAnAtMostOnceCall(t *testing.T) {
	lost := func(a *process[order, string]) sagatest.Fault {
		return func(context.Context, sagatest.StoreCall, func(context.Context) error) error {
			a.net.Die()
			return sagatest.ErrDead
		}
	}
	started, done := sagatest.Records("fire", state.StepStarted), sagatest.Records("fire", state.StepDone)
	for name, c := range map[string]struct {
		script func(a *process[order, string])
		probe  func() (voucher, bool, error)
		result string // empty: blocked
		shots  int
	}{
		"before the mark":                {func(a *process[order, string]) { a.net.On(started, lost(a)) }, nil, "fire-2", 1},
		"behind the mark, not called":    {func(a *process[order, string]) { a.net.On(started, sagatest.After(a.net.Die)) }, nil, "", 0},
		"behind the call, nobody to ask": {func(a *process[order, string]) { a.net.On(done, lost(a)) }, nil, "", 1},
		"behind the call, it hit":        {func(a *process[order, string]) { a.net.On(done, lost(a)) }, hit, "hit", 1},
		"behind the call, it missed":     {func(a *process[order, string]) { a.net.On(done, lost(a)) }, missed, "", 1},
		"behind the record":              {func(a *process[order, string]) { a.net.On(done, sagatest.After(a.net.Die)) }, nil, "fire-2", 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, gun{p: p}.saga())
				c.script(a)
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.ErrorIs(t, err, sagatest.ErrDead)
				b := newProcess(t, world, store, gun{p: p, probe: c.probe}.saga())
				b.clk.Advance(theLease)
				out, err := b.o.Run(t.Context(), theKey, theOrder)
				if c.result == "" {
					require.Equal(t, saga.CodeUnresolved, sagaError(t, err, saga.ErrBlocked).Code)
				} else {
					require.NoError(t, err)
					require.Equal(t, c.result, out)
				}
				shots := 0
				for _, call := range p.seen() {
					if call == "fire" {
						shots++
					}
				}
				require.Equal(t, c.shots, shots)
			})
		})
	}
}

// The answer to the mark comes when the lease is over, or the caller has gone: the call is not made, and the mark is
// taken back, for whoever comes next to call.
func TestAnAnswerToTheMarkThatComesTooLateMakesNoCall(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		for name, late := range map[string]func(a *process[order, string], cancel func()){
			"lease-over":  func(a *process[order, string], _ func()) { a.clk.Advance(saga.DefaultLease - time.Second) },
			"caller-gone": func(_ *process[order, string], cancel func()) { cancel() },
		} {
			p, store := new(participant), open()
			key := saga.Key{Tenant: theKey.Tenant, ID: name}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := newProcess(t, world, store, gun{p: p}.saga())
			a.net.On(sagatest.Records("fire", state.StepStarted), sagatest.After(func() { late(a, cancel) }))
			_, err := a.o.Run(ctx, key, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
			require.Equal(t, []string{"aim"}, p.seen(), name)
			rec := recordOf(t, store, key, "gun")
			require.Equal(t, "DONE PENDING PENDING", stepStatuses(rec), name)
			require.Zero(t, rec.Steps[1].Attempts)
			require.False(t, rec.Steps[1].Unknown)
			_, err = a.o.Run(t.Context(), key, theOrder)
			require.NoError(t, err, name)
			require.Equal(t, []string{"aim", "fire", "clean"}, p.seen(), name)
		}
	})
}

// And when another holder has taken the run up meanwhile, it is that one's business.
func TestAnAnswerToTheMarkThatComesAfterATakeOverMakesNoCall(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a, b := newProcess(t, world, store, gun{p: p}.saga()), newProcess(t, world, store, gun{p: p}.saga())
		b.clk.Advance(theLease)
		a.net.On(sagatest.Records("fire", state.StepStarted), sagatest.After(func() {
			a.clk.Advance(saga.DefaultLease - time.Second)
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrBlocked)
		}))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrLeaseLost)
		require.Equal(t, []string{"aim"}, p.seen())
	})
}

// The ways out of a shot that nobody can account for.
func TestAPersonResolvesAnAtMostOnceStep(t *testing.T) {
	blocked := func(t *testing.T, world *clock.Fake, store state.Store, g gun) *process[order, string] {
		t.Helper()
		broken := true
		g.fire = func(context.Context, *orderRun) error {
			if broken {
				return errors.New("no answer")
			}
			return nil
		}
		a := newProcess(t, world, store, g.saga())
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrBlocked)
		broken = false
		return a
	}
	t.Run("retry calls again", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p := new(participant)
			a := blocked(t, world, open(), gun{p: p})
			require.NoError(t, a.o.Retry(t.Context(), theKey, "it did not go off"))
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.Equal(t, []string{"aim", "fire", "fire", "clean"}, p.seen())
		})
	})
	t.Run("retry asks the probe first", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p := new(participant)
			answer := missed
			a := blocked(t, world, open(), gun{p: p, probe: func() (voucher, bool, error) { return answer() }})
			answer = hit
			require.NoError(t, a.o.Retry(t.Context(), theKey, "look again"))
			out, err := a.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.Equal(t, "hit", out)
			require.Equal(t, []string{"aim", "fire", "clean"}, p.seen())
		})
	})
	t.Run("a retry that is refused is undone all the same", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p, store := new(participant), open()
			a := blocked(t, world, store, gun{p: p, undo: true})
			require.NoError(t, a.o.Retry(t.Context(), theKey, "once more"))
			b := newProcess(t, world, store, gun{p: p, undo: true, fire: failing(steps.Permanent(errRefuse))}.saga())
			_, err := b.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrFailed)
			require.Equal(t, []string{"aim", "fire", "fire", "undo fire unknown", "undo aim known"}, p.seen(), "the first shot may have hit")
		})
	})
	t.Run("mark done", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p := new(participant)
			a := blocked(t, world, open(), gun{p: p, pivot: true})
			require.NoError(t, a.o.MarkDone(t.Context(), theKey, "fire", voucher{"by hand"}, "I saw it"))
			out, err := a.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.Equal(t, "by hand", out)
			require.Equal(t, []string{"aim", "fire", "clean"}, p.seen())
		})
	})
	t.Run("force compensate", func(t *testing.T) {
		for _, pivot := range []bool{false, true} {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p := new(participant)
				a := blocked(t, world, open(), gun{p: p, undo: true, pivot: pivot})
				require.NoError(t, a.o.ForceCompensate(t.Context(), theKey, "give up"))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrFailed)
				require.Equal(t, []string{"aim", "fire", "undo fire unknown", "undo aim known"}, p.seen())
			})
		}
	})
	t.Run("force compensate without a compensation", func(t *testing.T) {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p := new(participant)
			a := blocked(t, world, open(), gun{p: p})
			require.NoError(t, a.o.ForceCompensate(t.Context(), theKey, "give up"))
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.Equal(t, []string{"fire"}, sagaError(t, err, saga.ErrFailed).NotUndone)
		})
	})
}

// The When behind a step that a person marked done is decided by the take-up, and once decided it stays so: a death
// behind the call of that step does not let it be skipped.
func TestTheWhenBehindAMarkedStepIsDecidedOnce(t *testing.T) {
	for _, first := range []bool{true, false} {
		eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
			p, store := new(participant), open()
			answer := first
			asked := 0
			g := gun{p: p, loaded: func(*orderRun) bool { asked++; return answer }}
			a := newProcess(t, world, store, gun{p: p, loaded: g.loaded, fire: failing(errors.New("no answer"))}.saga())
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrBlocked)
			require.NoError(t, a.o.MarkDone(t.Context(), theKey, "fire", voucher{"by hand"}, "I saw it"))
			require.Zero(t, asked)

			b := newProcess(t, world, store, g.saga())
			die := sagatest.Match(func(c sagatest.StoreCall) bool {
				return sagatest.Records("clean", state.StepDone)(c) || sagatest.Becomes(state.StatusCompleted)(c)
			})
			b.net.On(die, func(context.Context, sagatest.StoreCall, func(context.Context) error) error {
				b.net.Die()
				return sagatest.ErrDead
			})
			_, err = b.o.Run(t.Context(), theKey, theOrder)
			require.Error(t, err)
			require.Equal(t, 1, asked)
			answer = !first
			c := newProcess(t, world, store, g.saga())
			c.clk.Advance(theLease)
			_, err = c.o.Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.Equal(t, 1, asked)
			want := map[bool]string{true: "DONE DONE DONE", false: "DONE DONE SKIPPED"}[first]
			require.Equal(t, want, stepStatuses(recordOf(t, store, theKey, "gun")))
		})
	}
}

// A shot that nobody can account for stays unknown through compensations that fail: the probe is asked each time, and once
// it knows, so does the compensation.
func TestAShotStaysUnknownThroughFailingCompensations(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		answer := missed
		of := func(undo error) *process[order, steps.None] {
			fire := steps.New("fire", func(context.Context, *orderRun) (voucher, error) { return voucher{}, errors.New("no answer") }).AtMostOnce().
				Probe(func(context.Context, *orderRun) (voucher, bool, error) { return answer() }).CompensateRetry(once).
				Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[voucher]) error {
					p.undo("fire", did.Known, r.IdempotencyKey())
					return undo
				})
			return newProcess(t, world, store, saga.Define("gun", saga.NoResult[order], fire))
		}
		_, err := of(nil).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrBlocked)
		require.NoError(t, of(nil).o.ForceCompensate(t.Context(), theKey, "enough"))
		for range 2 {
			_, err = of(errors.New("busy")).o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		}
		answer = hit
		_, err = of(nil).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, []string{"undo fire unknown", "undo fire unknown", "undo fire known"}, p.seen())
	})
}

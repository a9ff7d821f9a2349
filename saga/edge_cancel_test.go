package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// moment is a place in a run of three steps at which something comes in between.
type moment struct {
	write  int    // the nth write of the run; 0: none
	made   bool   // behind the write, its answer not yet heard
	lost   bool   // and never heard: the write is sent again
	call   string // the step whose function is at work
	behind bool   // behind its effect
}

func (m moment) String() string {
	switch {
	case m.write > 0 && m.lost:
		return fmt.Sprintf("with the answer of write %d lost", m.write)
	case m.write > 0 && m.made:
		return fmt.Sprintf("behind write %d", m.write)
	case m.write > 0:
		return fmt.Sprintf("before write %d", m.write)
	case m.behind:
		return "in " + m.call + ", behind its effect"
	}
	return "in " + m.call + ", before its effect"
}

// moments are all places in a run of three steps but the one before its record is there.
func moments() (all []moment) {
	for n := 1; n <= 4; n++ {
		if n > 1 {
			all = append(all, moment{write: n})
		}
		all = append(all, moment{write: n, made: true}, moment{write: n, made: true, lost: true})
	}
	for _, s := range []string{"s1", "s2", "s3"} {
		all = append(all, moment{call: s}, moment{call: s, behind: true})
	}
	return all
}

// plant lets f come in at the moment, once.
func (m moment) plant(c *chain, net func() *sagatest.FaultyStore, f func()) (script func()) {
	once := false
	hook := func(context.Context, *orderRun) error {
		if !once {
			once = true
			f()
		}
		return nil
	}
	switch {
	case m.write == 0 && m.behind:
		c.after = at(m.call, hook)
	case m.write == 0:
		c.before = at(m.call, hook)
	}
	return func() {
		seen := 0
		nth := func(call sagatest.StoreCall) bool {
			if sagatest.Writes(call) {
				seen++
			}
			return sagatest.Writes(call) && seen == m.write
		}
		switch {
		case m.write == 0:
		case m.lost:
			net().On(nth, func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
				_ = send(ctx)
				f()
				return sagatest.ErrNoAnswer
			})
		case m.made:
			net().On(nth, sagatest.After(f))
		default:
			net().On(nth, sagatest.Before(f))
		}
	}
}

// undone tells that the calls are some steps in order, and then the same ones backwards, once each.
func undone(t *testing.T, calls []string) {
	t.Helper()
	var did, back []string
	for _, c := range calls {
		if s, ok := strings.CutPrefix(c, "undo "); ok {
			back = append(back, strings.Fields(s)[0])
		} else {
			did = append(did, c)
		}
	}
	slices.Reverse(back)
	require.Equal(t, did, back, "%v", calls)
}

// Cancel at every moment of a run, with its holder at work: a cancel that was acknowledged is never followed by
// COMPLETED, and what was done is undone.
func TestACancelAtEveryMomentOfARunAtWork(t *testing.T) {
	for _, m := range moments() {
		for _, who := range []string{"orchestrator", "operator"} {
			t.Run(m.String()+" by the "+who, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					var a *process[order, []string]
					var cancelled error
					c := chain{p: p}
					script := m.plant(&c, func() *sagatest.FaultyStore { return a.net }, func() {
						if who == "operator" {
							cancelled = saga.NewOperator(store).Cancel(t.Context(), saga.Key{Tenant: "t", Operation: "chain", ID: "1"}, "no")
							return
						}
						cancelled = newProcess(t, world, store, chain{p: p}.of(3)).o.Cancel(t.Context(), theKey, "no")
					})
					a = newProcess(t, world, store, c.of(3))
					script()
					out, err := a.o.Run(t.Context(), theKey, theOrder)
					rec := recordOf(t, store, theKey, "chain")
					if cancelled != nil {
						sagaError(t, cancelled, saga.ErrNotAllowed)
						require.Equal(t, 4, m.write, "only behind the last write it is too late")
						require.NoError(t, err)
						require.Len(t, out, 3)
						return
					}
					e := sagaError(t, err, saga.ErrFailed)
					require.Equal(t, saga.CodeCancelled, e.Code)
					require.Empty(t, e.NotUndone)
					require.ErrorContains(t, err, "no")
					require.Equal(t, state.StatusFailed, rec.Status)
					undone(t, p.seen())
					require.NotContains(t, p.seen(), "undo s1 unknown")
				})
			})
		}
	}
}

// Cancel when the process has died at every moment of a run: the undo runs at once on an orchestrator, as soon as the
// lease has lapsed, and the request stands before that.
func TestACancelBehindADeathAtEveryMoment(t *testing.T) {
	for _, m := range moments() {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, lease live: %v", m, live), func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					var a *process[order, []string]
					c := chain{p: p}
					script := m.plant(&c, func() *sagatest.FaultyStore { return a.net }, func() { a.net.Die() })
					a = newProcess(t, world, store, c.of(3))
					script()
					_, err := a.o.Run(t.Context(), theKey, theOrder)
					require.Error(t, err)
					done := len(p.seen())
					b := newProcess(t, world, store, chain{p: p}.of(3))
					if !live {
						b.clk.Advance(theLease)
					}
					err = b.o.Cancel(t.Context(), theKey, "no")
					rec := recordOf(t, store, theKey, "chain")
					if m.write == 4 && rec.Status == state.StatusCompleted {
						sagaError(t, err, saga.ErrNotAllowed)
						return
					}
					require.NoError(t, err)
					if live {
						require.Equal(t, state.StatusInProgress, rec.Status)
						require.Equal(t, "no", rec.Cancel.Reason)
						b.clk.Advance(theLease)
						got, err := saga.Recover(t.Context(), b.o)
						require.NoError(t, err)
						require.Equal(t, saga.Recovered{Failed: 1}, got)
						rec = recordOf(t, store, theKey, "chain")
					}
					require.Equal(t, state.StatusFailed, rec.Status)
					require.Equal(t, saga.CodeCancelled, rec.Failure.Code)
					for _, call := range p.seen()[done:] {
						require.Contains(t, call, "undo", "nothing goes forward any more")
					}
					for _, call := range p.seen()[:done] {
						require.True(t, slices.ContainsFunc(p.seen()[done:], func(u string) bool { return strings.HasPrefix(u, "undo "+call) }), call)
					}
				})
			})
		}
	}
}

// What a step emitted is due although the cancel came before its record: it was done.
func TestACancelledStepsMessagesAreDue(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, chain{p: p, after: at("s1", func(ctx context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "told", Body: "done"})
			return store.RequestCancel(ctx, r.Key().String(), state.CancelRequest{Reason: "no"})
		}), afterUndo: func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "told", Body: "undone"})
			return nil
		}}.of(2))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrFailed)
		rec := recordOf(t, store, theKey, "chain")
		require.Len(t, rec.Outbox.Messages, 2)
		require.Equal(t, "t#chain#1/s1/0", rec.Outbox.Messages[0].ID)
		require.Equal(t, "t#chain#1/s1/compensate/0", rec.Outbox.Messages[1].ID)
		require.True(t, rec.ExpiresAt.IsZero(), "not before they are sent")
	})
}

// Each status in turn: where a run rests, a cancel is a request that is obeyed at once, or not allowed.
func TestCancelWhereARunRests(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		chain   chain
		kind    error // of the run that leads there
		allowed bool
		ends    state.Status
	}{
		"interrupted":   {chain{after: at("s2", failing(busy))}, saga.ErrInterrupted, true, state.StatusFailed},
		"compensating":  {chain{before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: failing(busy)}, saga.ErrInterrupted, true, state.StatusFailed},
		"completed":     {chain{}, nil, false, state.StatusCompleted},
		"failed":        {chain{before: at("s2", failing(steps.Permanent(errRefuse)))}, saga.ErrFailed, false, state.StatusFailed},
		"blocked":       {chain{before: at("s2", failing(steps.Permanent(errRefuse))), beforeUndo: failing(steps.Permanent(busy))}, saga.ErrBlocked, false, state.StatusBlocked},
		"not there yet": {chain{}, saga.ErrNotFound, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				ch := c.chain
				ch.p = p
				var err error
				if !errors.Is(c.kind, saga.ErrNotFound) {
					_, err = newProcess(t, world, store, ch.of(2)).o.Run(t.Context(), theKey, theOrder)
				} else {
					err = &saga.Error{Kind: saga.ErrNotFound}
				}
				require.Equal(t, c.kind == nil, err == nil, "%v", err)
				if c.kind != nil {
					sagaError(t, err, c.kind)
				}
				err = newProcess(t, world, store, chain{p: p}.of(2)).o.Cancel(t.Context(), theKey, "no")
				switch {
				case errors.Is(c.kind, saga.ErrNotFound):
					sagaError(t, err, saga.ErrNotFound)
					return
				case c.allowed:
					require.NoError(t, err)
				default:
					sagaError(t, err, saga.ErrNotAllowed)
				}
				require.Equal(t, c.ends, recordOf(t, store, theKey, "chain").Status)
			})
		})
	}
}

// pivotal is s1, the pivot s2 and s3.
func pivotal(c chain) *saga.Definition[order, []string] {
	declare := c.declare
	c.declare = func(i int, s *steps.Step[order, voucher]) {
		if declare != nil {
			declare(i, s)
		}
		if i == 1 {
			s.Pivot()
		}
	}
	return c.of(3)
}

func probing(found bool, asked *int) func(int, *steps.Step[order, voucher]) {
	return func(i int, s *steps.Step[order, voucher]) {
		if i == 1 {
			s.Probe(func(context.Context, *orderRun) (voucher, bool, error) {
				*asked++
				return voucher{"probed"}, found, nil
			})
		}
	}
}

// A cancel around a pivot, with its holder at work. Before it the run goes back; while it is at work its result decides;
// behind it, it is not allowed.
func TestACancelAroundAPivotAtWork(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		at      string
		behind  bool
		answer  error // of the pivot
		allowed bool
		kind    error
		calls   []string
		dropped bool
	}{
		"before it":                      {"s1", true, nil, true, saga.ErrFailed, []string{"s1", "undo s1 known"}, false},
		"in it, and it is done":          {"s2", true, nil, true, nil, []string{"s1", "s2", "s3"}, true},
		"in it, and it is refused":       {"s2", true, steps.Permanent(errRefuse), true, saga.ErrFailed, []string{"s1", "s2", "undo s1 known"}, false},
		"in it, and it gives no answer":  {"s2", true, busy, true, saga.ErrInterrupted, []string{"s1", "s2"}, false},
		"behind it":                      {"s3", false, nil, false, nil, []string{"s1", "s2", "s3"}, false},
		"behind it, and the step is off": {"s3", true, nil, false, nil, []string{"s1", "s2", "s3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				var cancelled error
				cancel := func(ctx context.Context, r *orderRun) error {
					cancelled = store.RequestCancel(ctx, r.Key().String(), state.CancelRequest{Reason: "no", At: world.Now()})
					if c.at == "s2" {
						return c.answer
					}
					return nil
				}
				ch := chain{p: p}
				if c.behind {
					ch.after = at(c.at, cancel)
				} else {
					ch.before = at(c.at, cancel)
				}
				a := newProcess(t, world, store, pivotal(ch))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, c.allowed, cancelled == nil, "%v", cancelled)
				if !c.allowed {
					require.ErrorIs(t, cancelled, state.ErrNotAllowed)
				}
				if c.kind == nil {
					require.NoError(t, err)
				} else {
					sagaError(t, err, c.kind)
				}
				require.Equal(t, c.calls, p.seen())
				rec := recordOf(t, store, theKey, "chain")
				if c.dropped {
					require.Nil(t, rec.Cancel)
					require.Len(t, rec.Audit, 1)
					require.Equal(t, "cancel_dropped", rec.Audit[0].Verb)
					require.Equal(t, "s2", rec.Audit[0].Step)
				} else {
					require.Empty(t, rec.Audit)
				}
				if errors.Is(c.kind, saga.ErrInterrupted) { // the request stays until the pivot is known
					require.NotNil(t, rec.Cancel)
					_, err = newProcess(t, world, store, pivotal(chain{p: p})).o.Run(t.Context(), theKey, theOrder)
					require.NoError(t, err)
					rec = recordOf(t, store, theKey, "chain")
					require.Nil(t, rec.Cancel)
					require.Equal(t, "cancel_dropped", rec.Audit[0].Verb)
				}
			})
		})
	}
}

// A cancel of a run whose pivot may have happened, and that nobody holds. With somebody to ask it is asked, and its
// answer decides; without, the request stands, and the pivot is tried again by whoever goes on with the run.
func TestACancelOfARunWithAnUnknownPivot(t *testing.T) {
	leave := map[string]func(t *testing.T, world *clock.Fake, store state.Store, p *participant){
		"interrupted": func(t *testing.T, world *clock.Fake, store state.Store, p *participant) {
			_, err := newProcess(t, world, store, pivotal(chain{p: p, after: at("s2", failing(errors.New("busy")))})).o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrInterrupted)
		},
		"died": func(t *testing.T, world *clock.Fake, store state.Store, p *participant) {
			var a *process[order, []string]
			a = newProcess(t, world, store, pivotal(chain{p: p, after: at("s2", func(context.Context, *orderRun) error { a.net.Die(); return nil })}))
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			require.ErrorIs(t, err, sagatest.ErrDead)
			world.Advance(theLease)
		},
	}
	for how, left := range leave {
		for name, c := range map[string]struct {
			probe  func(*int) func(int, *steps.Step[order, voucher])
			status state.Status // behind the cancel
			kind   error        // of the next call
			calls  []string     // behind that
		}{
			"it did not happen": {func(n *int) func(int, *steps.Step[order, voucher]) { return probing(false, n) },
				state.StatusFailed, saga.ErrFailed, []string{"s1", "s2", "undo s1 known"}},
			"it happened": {func(n *int) func(int, *steps.Step[order, voucher]) { return probing(true, n) },
				state.StatusCompleted, nil, []string{"s1", "s2", "s3"}},
			"nobody to ask": {func(*int) func(int, *steps.Step[order, voucher]) { return nil },
				"", nil, []string{"s1", "s2", "s2", "s3"}},
		} {
			t.Run(how+", "+name, func(t *testing.T) {
				eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
					p, store := new(participant), open()
					left(t, world, store, p)
					asked := 0
					b := newProcess(t, world, store, pivotal(chain{p: p, declare: c.probe(&asked)}))
					before := recordOf(t, store, theKey, "chain")
					require.NoError(t, b.o.Cancel(t.Context(), theKey, "no"))
					rec := recordOf(t, store, theKey, "chain")
					if c.status == "" {
						require.Equal(t, before.Revision, rec.Revision, "a request, and nothing else")
						require.NotNil(t, rec.Cancel)
					} else {
						require.Equal(t, c.status, rec.Status)
						require.Equal(t, 1, asked)
					}
					_, err := b.o.Run(t.Context(), theKey, theOrder)
					if c.kind == nil {
						require.NoError(t, err)
						rec = recordOf(t, store, theKey, "chain")
						require.Nil(t, rec.Cancel)
						require.Equal(t, "cancel_dropped", rec.Audit[0].Verb)
						sagaError(t, b.o.Cancel(t.Context(), theKey, "again"), saga.ErrNotAllowed)
					} else {
						require.Equal(t, saga.CodeCancelled, sagaError(t, err, c.kind).Code)
					}
					require.Equal(t, c.calls, p.seen())
				})
			})
		}
	}
}

// An at-most-once pivot whose holder died before its mark never started: the run goes back.
func TestACancelBeforeTheMarkOfAnAtMostOncePivotIsObeyedAtOnce(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, gun{p: p, pivot: true}.saga())
		a.net.On(sagatest.Records("aim", state.StepDone), sagatest.After(a.net.Die))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, sagatest.ErrDead)
		b := newProcess(t, world, store, gun{p: p, pivot: true}.saga())
		b.clk.Advance(theLease)
		require.NoError(t, b.o.Cancel(t.Context(), theKey, "no"))
		require.Equal(t, state.StatusFailed, recordOf(t, store, theKey, "gun").Status)
		require.Equal(t, []string{"aim", "undo aim known"}, p.seen())
	})
}

// A person marks the pivot done at which a cancelled run is blocked: the request is overtaken by that too.
func TestAPivotMarkedDoneDropsTheCancel(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, gun{p: p, pivot: true, fire: func(ctx context.Context, r *orderRun) error {
			if err := store.RequestCancel(ctx, r.Key().String(), state.CancelRequest{Reason: "no"}); err != nil {
				return steps.Permanent(err)
			}
			return errors.New("no answer")
		}}.saga())
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrBlocked)
		require.NotNil(t, recordOf(t, store, theKey, "gun").Cancel)
		require.NoError(t, a.o.MarkDone(saga.ActorContext(t.Context(), "ann"), theKey, "fire", voucher{"by hand"}, "it is out"))
		rec := recordOf(t, store, theKey, "gun")
		require.Nil(t, rec.Cancel)
		require.Len(t, rec.Audit, 2)
		require.Equal(t, []string{"mark_done", "ann"}, []string{rec.Audit[0].Verb, rec.Audit[0].Actor})
		require.Equal(t, []string{"cancel_dropped", "tsuzuki"}, []string{rec.Audit[1].Verb, rec.Audit[1].Actor})
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, rec.Revision+2, recordOf(t, store, theKey, "gun").Revision, "no write is refused on the way")
	})
}

// A cancel does not shorten a delay that a pivot in doubt has asked for.
func TestACancelDoesNotShortenThePivotsDelay(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		p, store := new(participant), open()
		a := newProcess(t, world, store, pivotal(chain{p: p, after: at("s2", failing(steps.RetryAfter(time.Hour, nil)))}))
		_, err := a.o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		require.NoError(t, a.o.Cancel(t.Context(), theKey, "no"))
		_, err = a.o.Run(t.Context(), theKey, theOrder)
		require.Positive(t, sagaError(t, err, saga.ErrInterrupted).RetryAfter)
		require.Equal(t, []string{"s1", "s2"}, p.seen())
	})
}

// But a run that may go back needs no step's permission: neither the delay nor recovery's growing wait hold it.
func TestACancelledRunGoesBackInSpiteOfADelay(t *testing.T) {
	for name, back := range map[string]func(ctx context.Context, a *process[order, []string]) error{
		"recovery": func(ctx context.Context, a *process[order, []string]) error {
			got, err := saga.Recover(ctx, a.o)
			if got != (saga.Recovered{Failed: 1}) {
				return fmt.Errorf("%+v", got)
			}
			return err
		},
		"the same key": func(ctx context.Context, a *process[order, []string]) error {
			if _, err := a.o.Run(ctx, theKey, theOrder); !errors.Is(err, saga.ErrFailed) {
				return err
			}
			return nil
		},
		"cancel on an orchestrator": func(ctx context.Context, a *process[order, []string]) error {
			return a.o.Cancel(ctx, theKey, "no, I said")
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, chain{p: p, after: at("s2", failing(steps.RetryAfter(time.Hour, nil)))}.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				require.NoError(t, saga.NewOperator(store).Cancel(t.Context(), saga.Key{Tenant: "t", Operation: "chain", ID: "1"}, "no"))
				require.NoError(t, back(t.Context(), a))
				rec := recordOf(t, store, theKey, "chain")
				require.Equal(t, state.StatusFailed, rec.Status)
				require.Equal(t, "no", rec.Cancel.Reason, "the first request stays")
				require.Equal(t, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
			})
		})
	}
}

// The undo that a cancel starts may stop on its way; the cancel was heard all the same.
func TestACancelWhoseUndoStopsIsStillGranted(t *testing.T) {
	for name, chain2 := range map[string]chain{
		"busy":    {beforeUndo: failing(errors.New("busy"))},
		"blocked": {beforeUndo: failing(steps.Permanent(errors.New("never")))},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				chain2 := chain2
				chain2.p, chain2.after = p, at("s2", failing(errors.New("busy")))
				a := newProcess(t, world, store, chain2.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				require.NoError(t, a.o.Cancel(t.Context(), theKey, "no"))
				want := map[string]state.Status{"busy": state.StatusCompensating, "blocked": state.StatusBlocked}[name]
				require.Equal(t, want, recordOf(t, store, theKey, "chain").Status)
			})
		})
	}
}

// The answer to a request was lost, and it was obeyed to the end before it is sent again: it was granted.
func TestACancelWhoseAnswerIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		between func(t *testing.T, a *process[order, []string])
		granted bool
	}{
		"and nothing happens meanwhile": {func(*testing.T, *process[order, []string]) {}, true},
		"and it is obeyed meanwhile": {func(t *testing.T, a *process[order, []string]) {
			_, err := a.o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrFailed)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				a := newProcess(t, world, store, chain{p: p, after: at("s2", failing(errors.New("busy")))}.of(2))
				_, err := a.o.Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrInterrupted)
				b := newProcess(t, world, store, chain{p: p}.of(2))
				b.net.On(sagatest.Method("RequestCancel"), func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
					assert.NoError(t, send(ctx))
					c.between(t, a)
					return sagatest.ErrNoAnswer
				})
				require.NoError(t, b.o.Cancel(t.Context(), theKey, "no"))
				require.Equal(t, state.StatusFailed, recordOf(t, store, theKey, "chain").Status)
				sagaError(t, b.o.Cancel(t.Context(), theKey, "no"), saga.ErrNotAllowed)
			})
		})
	}
}

// A request that comes between a look at the run and its take-up is obeyed by the take-up: nothing goes forward any more.
func TestACancelJustBeforeATakeUpIsObeyedFirst(t *testing.T) {
	for _, where := range []string{"INTERRUPTED", "IN_PROGRESS"} {
		t.Run(where, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				p, store := new(participant), open()
				bringTo(t, world, store, where)
				b := newProcess(t, world, store, chain{p: p}.of(2))
				b.clk.Advance(theLease)
				b.net.On(sagatest.TakesUp, sagatest.Before(func() {
					require.NoError(t, store.RequestCancel(t.Context(), "t#chain#1", state.CancelRequest{Reason: "no"}))
				}))
				_, err := b.o.Run(t.Context(), theKey, theOrder)
				require.Equal(t, saga.CodeCancelled, sagaError(t, err, saga.ErrFailed).Code)
				require.Equal(t, []string{"undo s2 unknown", "undo s1 known"}, p.seen())
			})
		})
	}
}

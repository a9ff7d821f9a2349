package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// order is the input of the sagas in these tests.
type order struct {
	No     string `json:"no"`
	Amount int64  `json:"amount"`
}

// voucher is what a participant gives for an effect.
type voucher struct {
	ID string `json:"id"`
}

// participant is the outside world: it honours idempotency keys, and remembers every call in order.
type participant struct {
	mu      sync.Mutex
	calls   []string // "s1 <key>", "undo s1 known <key>", "undo s1 unknown <key>"
	effects map[string]string
}

// do has the effect named by the key, once, and answers the same each time. The numbers go up with each new effect, so
// that one too many shows in every later voucher.
func (p *participant) do(step, key string) voucher {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, step+" "+key)
	if p.effects == nil {
		p.effects = map[string]string{}
	}
	if p.effects[key] == "" {
		p.effects[key] = fmt.Sprintf("%s-%d", step, len(p.effects)+1)
	}
	return voucher{p.effects[key]}
}

func (p *participant) undo(step string, known bool, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word := "unknown"
	if known {
		word = "known"
	}
	p.calls = append(p.calls, "undo "+step+" "+word+" "+key)
}

// seen is the calls so far, without their keys.
func (p *participant) seen() []string {
	out := []string{}
	for _, c := range p.all() {
		out = append(out, c[:strings.LastIndexByte(c, ' ')])
	}
	return out
}

func (p *participant) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.calls...)
}

type orderRun = steps.Run[order]

// chain is a saga of steps s1, s2 ... that all call one participant, with compensations, and with a hook at each place
// where something can go wrong.
type chain struct {
	p *participant
	// before and after the effect of a step; an error is the step's own. May be nil.
	before, after func(ctx context.Context, r *orderRun) error
	// beforeUndo and afterUndo are the same in a compensation.
	beforeUndo, afterUndo func(ctx context.Context, r *orderRun) error
	// declare changes the declaration of the step at i, from 0; nil: none.
	declare func(i int, s *steps.Step[order, voucher])
	// also are steps behind the chain's own.
	also []steps.Declared[order]
}

func hooked(ctx context.Context, r *orderRun, f func(context.Context, *orderRun) error) error {
	if f == nil {
		return nil
	}
	return f(ctx, r)
}

// of is a chain of n steps whose result is every step's voucher in order.
func (c chain) of(n int) *saga.Definition[order, []string] {
	var typed []*steps.Step[order, voucher]
	var declared []steps.Declared[order]
	for i := range n {
		s := steps.New(fmt.Sprintf("s%d", i+1), func(ctx context.Context, r *orderRun) (voucher, error) {
			if err := hooked(ctx, r, c.before); err != nil {
				return voucher{}, err
			}
			got := c.p.do(r.Step(), r.IdempotencyKey())
			return got, hooked(ctx, r, c.after)
		}).Compensate(func(ctx context.Context, r *orderRun, did steps.Outcome[voucher]) error {
			if err := hooked(ctx, r, c.beforeUndo); err != nil {
				return err
			}
			c.p.undo(r.Step(), did.Known, r.IdempotencyKey())
			return hooked(ctx, r, c.afterUndo)
		}).Retry(once).CompensateRetry(once)
		if c.declare != nil {
			c.declare(i, s)
		}
		typed, declared = append(typed, s), append(declared, s)
	}
	return saga.Define("chain", func(_ context.Context, r *orderRun) ([]string, error) {
		var out []string
		for _, s := range typed {
			got, _ := s.Lookup(r)
			out = append(out, got.ID)
		}
		return out, nil
	}, append(declared, c.also...)...)
}

// once is a policy without retries.
var once = steps.RetryPolicy{PerRun: 1}

// at is a hook that does f at one step only.
func at(step string, f func(ctx context.Context, r *orderRun) error) func(context.Context, *orderRun) error {
	return func(ctx context.Context, r *orderRun) error {
		if r.Step() != step {
			return nil
		}
		return f(ctx, r)
	}
}

// failing is a hook that gives this error.
func failing(err error) func(context.Context, *orderRun) error {
	return func(context.Context, *orderRun) error { return err }
}

var (
	theKey    = saga.Key{Tenant: "t", ID: "1"}
	theOrder  = order{"no-1", 1200}
	errRefuse = errors.New("refused for good")
)

func newSaga[In, Out any](t *testing.T, d *saga.Definition[In, Out], store state.Store, opts ...saga.Option) *saga.Orchestrator[In, Out] {
	t.Helper()
	o, err := saga.New(d, store, opts...)
	require.NoError(t, err)
	return o
}

// recordOf is the stored record, read past every orchestrator.
func recordOf(t *testing.T, store state.Store, key saga.Key, operation string) *state.Record {
	t.Helper()
	key.Operation = operation
	rec, err := store.Get(t.Context(), key.String())
	require.NoError(t, err)
	return rec
}

// sagaError is the *saga.Error in err, of this kind.
func sagaError(t *testing.T, err, kind error) *saga.Error {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var e *saga.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, kind, e.Kind, "%v", err)
	return e
}

// lapse lets every lease end.
func lapse(clk *clock.Fake) { clk.Advance(saga.DefaultLease + time.Second) }

// stepStatuses puts the step statuses in words, "DONE PENDING ...".
func stepStatuses(rec *state.Record) string {
	var words []string
	for _, s := range rec.Steps {
		words = append(words, string(s.Status))
	}
	return strings.Join(words, " ")
}

// retryOften is a chain's declare that lets every step be tried three times.
func retryOften(_ int, s *steps.Step[order, voucher]) { s.Retry(steps.RetryPolicy{PerRun: 3}) }

// oneStep is a saga of one step, which is tried once a run.
func oneStep(do func(context.Context, *orderRun) error) *saga.Definition[order, steps.None] {
	return saga.Define("op", saga.NoResult[order], steps.Do("a", do).Retry(steps.RetryPolicy{PerRun: 1}))
}

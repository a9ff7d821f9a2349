package sagatest_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func TestTravelSurvives(t *testing.T) {
	report := sagatest.Crash(t, travel, purchaseKey, somePurchase)
	assert.Empty(t, report.NeverReached)
	assert.Greater(t, report.Struck(), 200)
	report = sagatest.Crash(t, travel, purchaseKey, purchase{No: "o-2", Amount: 10})
	assert.Equal(t, []string{"do car", "undo car"}, report.NeverReached, "what a When leaves out is said")
}

func TestASagaThatFailsSurvives(t *testing.T) {
	report := sagatest.Crash(t, soldOut, purchaseKey, somePurchase)
	assert.Empty(t, report.NeverReached, "the hotel is unknown when its process dies")
}

func TestAtMostOnceSurvives(t *testing.T) {
	report := sagatest.Crash(t, transfer, purchaseKey, somePurchase)
	assert.Empty(t, report.NeverReached)
}

func TestAPivotSurvives(t *testing.T) {
	report := sagatest.Crash(t, checkout, purchaseKey, somePurchase)
	assert.Empty(t, report.NeverReached)
}

// Every kind of fault strikes, and the lab works on a store of the caller's.
func TestTheLabOnAStoreOfOnesOwn(t *testing.T) {
	var store *memory.Store
	report := sagatest.Crash(t, travel, purchaseKey, somePurchase,
		sagatest.OnStore(func(clk saga.Clock) state.Store { store = memory.New(memory.WithClock(clk)); return store }),
		sagatest.WithOptions(saga.WithRetry(steps.RetryPolicy{PerRun: 1})))
	require.Len(t, report.Faults, 8)
	page, err := store.List(t.Context(), state.Query{})
	require.NoError(t, err)
	assert.Empty(t, page.Records, "the lab leaves nothing behind")
}

// The lab does not depend on how long a lease is, nor on how often something is tried, nor on who looks on.
func TestTheLabWithOptionsOfTheUsers(t *testing.T) {
	for name, opt := range map[string]saga.Option{
		"a long lease":   saga.WithLease(3 * time.Hour),
		"a short lease":  saga.WithLease(100 * time.Millisecond),
		"many attempts":  saga.WithRetry(steps.RetryPolicy{PerRun: 20, Initial: time.Second, Max: time.Hour}),
		"an interceptor": saga.WithInterceptor(func(ctx context.Context, _ saga.Call, next func(context.Context) error) error { return next(ctx) }),
		"another clock":  saga.WithClock(saga.SystemClock()),
	} {
		t.Run(name, func(t *testing.T) {
			sagatest.Crash(t, checkout, purchaseKey, somePurchase, sagatest.WithOptions(opt))
		})
	}
}

// tb is a test that only notes what it is told.
type tb struct {
	testing.TB
	errors, logs []string
}

func (r *tb) Helper()                   {}
func (r *tb) Name() string              { return "TestMine/of a kind" }
func (r *tb) Errorf(f string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(f, a...)) }
func (r *tb) Logf(f string, a ...any)   { r.logs = append(r.logs, fmt.Sprintf(f, a...)) }
func (r *tb) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }

// complaints runs a saga through the lab and returns what it has to say.
func complaints[Out any](t *testing.T, wrong func(*sagatest.Recorder) *saga.Definition[purchase, Out]) string {
	t.Helper()
	r := &tb{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); sagatest.Crash(r, wrong, purchaseKey, somePurchase) }()
	<-done
	return strings.Join(r.errors, "\n")
}

func one(s *steps.Step[purchase, string]) *saga.Definition[purchase, string] {
	first := steps.Do("first", func(context.Context, *purchaseRun) error { return nil })
	last := steps.Do("last", func(context.Context, *purchaseRun) error { return nil })
	return saga.Define("wrong", func(_ context.Context, r *purchaseRun) (string, error) { return s.Output(r), nil }, first, s, last)
}

func TestTheLabFindsTheMistakesOfUsers(t *testing.T) {
	for name, c := range map[string]struct {
		saga func(rec *sagatest.Recorder) *saga.Definition[purchase, string]
		says []string
	}{
		"a compensation that reads Output without looking at Known": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", effect(rec)).Compensate(func(ctx context.Context, r *purchaseRun, did steps.Outcome[string]) error {
					return rec.Undo(ctx, r.IdempotencyKey(), did.Output)
				}))
			},
			[]string{"the compensation of charge", "Known == false", "did.Key", "the process dies and a cancel arrives", "-sagatest.only='run/"},
		},
		"a compensation that panics without a result": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", effect(rec)).Compensate(func(ctx context.Context, r *purchaseRun, did steps.Outcome[string]) error {
					_ = did.Output[0]
					return rec.Undo(ctx, r.IdempotencyKey(), did.Key.String())
				}))
			},
			[]string{"does not come to rest", "the undo of charge panicked", "Known == false"},
		},
		"a compensation that does nothing unless it knows": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", effect(rec)).Compensate(func(ctx context.Context, r *purchaseRun, did steps.Outcome[string]) error {
					if !did.Known {
						return nil
					}
					return rec.Undo(ctx, r.IdempotencyKey(), did.Output)
				}))
			},
			[]string{"the effect of step charge", "still stands", "else by did.Key"},
		},
		"a step with a random key": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					return rec.Effect(ctx, fmt.Sprint("key-", rand.Uint64()), r.Input)
				}))
			},
			[]string{"the do of step charge made a call with a key of its own", "pass r.IdempotencyKey()"},
		},
		"a compensation with a random key": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", effect(rec)).Compensate(func(ctx context.Context, _ *purchaseRun, did steps.Outcome[string]) error {
					return rec.Undo(ctx, fmt.Sprint("key-", rand.Uint64()), did.Key.String())
				}))
			},
			[]string{"the undo of step charge made a call with a key of its own"},
		},
		"a step that reads the clock into its call": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					return rec.Effect(ctx, r.IdempotencyKey(), time.Now().String())
				}))
			},
			[]string{"are not the same call", "not on a clock"},
		},
		"a step that reads only the date": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					return rec.Effect(ctx, r.IdempotencyKey(), rec.Now().Format(time.DateOnly))
				}))
			},
			[]string{"are not the same call", "not on a clock"},
		},
		"a step used in a step and not declared": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				forgotten := steps.New("forgotten", effect(rec))
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					return rec.Effect(ctx, r.IdempotencyKey(), forgotten.Output(r))
				}))
			},
			[]string{"forgotten", "not declared", "hand every step whose result is read to Define"},
		},
		"a step used in the result and not declared": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				forgotten := steps.New("forgotten", effect(rec))
				return saga.Define("wrong", func(_ context.Context, r *purchaseRun) (string, error) { return forgotten.Output(r), nil }, steps.New("charge", effect(rec)))
			},
			[]string{"forgotten", "not declared", "hand every step whose result is read to Define"},
		},
		"a message emitted in the result function": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				charge := steps.New("charge", effect(rec))
				return saga.Define("wrong", func(_ context.Context, r *purchaseRun) (string, error) {
					r.Emit(outbox.Message{Topic: "charged", Body: "x"})
					return charge.Output(r), nil
				}, charge)
			},
			[]string{"Emit works in a step", "emit messages in a step"},
		},
		"calls without the step's context": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(_ context.Context, r *purchaseRun) (string, error) {
					if _, err := rec.Effect(context.Background(), r.Sub("fee").String(), 1); err != nil {
						return "", err
					}
					return rec.Effect(context.Background(), r.IdempotencyKey(), r.Input)
				}).NoCompensation())
			},
			[]string{"the recorder was called without the context of a step", "hand it the one that the step was given"},
		},
		"one call, without the step's context": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(_ context.Context, r *purchaseRun) (string, error) {
					return rec.Effect(context.Background(), r.IdempotencyKey(), r.Input)
				}).NoCompensation())
			},
			[]string{"the recorder was called without the context of a step", "hand it the one that the step was given"},
		},
		"a message emitted in a When": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", effect(rec)).When(func(r *purchaseRun) bool {
					r.Emit(outbox.Message{Topic: "charging", Body: "x"})
					return true
				}))
			},
			[]string{"without any fault the run failed: its When: ", "Emit works in a step, a compensation or a probe, not in when", "emit messages in a step"},
		},
		"a message that is not the same each time": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					r.Emit(outbox.Message{Topic: "charged", Body: rand.Uint64()})
					return rec.Effect(ctx, r.IdempotencyKey(), r.Input)
				}))
			},
			[]string{"message t#wrong#o-1/charge/0 is not the same in every run"},
		},
		"a probe that forgets the step's message": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return one(steps.New("charge", func(ctx context.Context, r *purchaseRun) (string, error) {
					r.Emit(outbox.Message{Topic: "charged", Body: "x"})
					return rec.Effect(ctx, r.IdempotencyKey(), r.Input)
				}).Probe(found(rec)))
			},
			[]string{"is missing", "the Probe has to emit it"},
		},
		"a step that keeps its result in a variable": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				var kept string
				charge := steps.New("charge", func(ctx context.Context, r *purchaseRun) (_ string, err error) {
					kept, err = rec.Effect(ctx, r.IdempotencyKey(), r.Input)
					return kept, err
				})
				ship := steps.Do("ship", func(ctx context.Context, r *purchaseRun) error { return rec.Call(ctx, r.IdempotencyKey(), kept) })
				return saga.Define("wrong", func(_ context.Context, r *purchaseRun) (string, error) { return charge.Output(r), nil }, charge, ship)
			},
			[]string{"the do of step ship made two calls under the key", "anything that is kept elsewhere"},
		},
		"a result that is not the same each time": {
			func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
				return saga.Define("wrong", func(context.Context, *purchaseRun) (string, error) { return fmt.Sprint(rand.Uint64()), nil }, steps.New("charge", effect(rec)))
			},
			[]string{"the run ended as COMPLETED", "without the fault it ends as COMPLETED"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := complaints(t, c.saga)
			for _, want := range c.says {
				assert.Contains(t, said, want)
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

// The line that a failure prints repeats that run and no other.
func TestAFailureIsRepeatedAlone(t *testing.T) {
	wrong := func(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
		return one(steps.New("charge", effect(rec)).Compensate(func(ctx context.Context, r *purchaseRun, did steps.Outcome[string]) error {
			return rec.Undo(ctx, r.IdempotencyKey(), did.Output)
		}))
	}
	name := regexp.MustCompile(`go test -run '\^TestMine\$/\^of a kind\$' \. -sagatest\.only='([^']+)'`)
	found := name.FindStringSubmatch(complaints(t, wrong))
	require.NotNil(t, found)
	only := func(what string) (string, sagatest.CrashReport) {
		require.NoError(t, flag.Set("sagatest.only", what))
		defer func() { require.NoError(t, flag.Set("sagatest.only", "")) }()
		r := &tb{TB: t}
		report := sagatest.Crash(r, wrong, purchaseKey, somePurchase)
		return strings.Join(r.errors, "\n"), report
	}
	said, report := only(found[1])
	assert.Contains(t, said, found[1])
	assert.Contains(t, said, "Known == false")
	assert.Equal(t, 1, report.Struck())
	said, report = only("run/nowhere/it fails")
	assert.Contains(t, said, "there is no such run")
	assert.Zero(t, report.Struck())
}

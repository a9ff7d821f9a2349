package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The situations are those that other idempotency libraries for Lambda test; docs/lambda.md lists them.

func TestAnExpiredRunIsForgotten(t *testing.T) {
	clk := new(clock.Fake)
	store, shop := memory.New(memory.WithClock(clk)), &shop{}
	o, err := saga.New(shop.definition().Retention(time.Hour), store, saga.WithClock(clk))
	require.NoError(t, err)
	handle := sagalambda.SQS(o, byNo)
	for _, tc := range []struct {
		passes time.Duration
		runs   int
	}{{0, 1}, {59 * time.Minute, 1}, {2 * time.Minute, 2}} {
		clk.Advance(tc.passes)
		resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
		assert.Empty(t, returned(t, resp, err))
		assert.Len(t, shop.charged, tc.runs)
	}
}

// dying is a store to which no holder can write any more: for others its process is dead.
type dying struct {
	state.Store
	dead bool
}

var errDead = errors.New("the process is dead")

func (d *dying) Commit(ctx context.Context, ch *state.Change) error {
	if d.dead {
		return errDead
	}
	return d.Store.Commit(ctx, ch)
}

func TestTheRunOfAKilledFunctionGoesOnWhenItsLeaseHasLapsed(t *testing.T) {
	clk := new(clock.Fake)
	clk.AutoAdvance()
	store := &dying{Store: memory.New(memory.WithClock(clk))}
	shop := &shop{}
	var keys []string
	shop.charge = func(_ context.Context, r *orderRun) error {
		keys = append(keys, r.IdempotencyKey())
		store.dead = len(keys) == 1 // it has charged, and nothing of it is recorded
		return nil
	}
	handle := sagalambda.SQS(shop.on(t, store, saga.WithClock(clk)), byNo)
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	store.dead = false
	rec := recordOf(t, store)
	assert.Equal(t, state.StatusInProgress, rec.Status)
	if clk.Now().Before(rec.LeaseUntil) {
		resp, err = handle(t.Context(), queue(message(t, "m1", "", "o-1")))
		assert.Equal(t, []string{"m1"}, returned(t, resp, err), "its lease is live")
		clk.Advance(rec.LeaseUntil.Sub(clk.Now()))
	}
	resp, err = handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Equal(t, []string{"o-1"}, shop.reserved, "recorded before it died")
	require.Len(t, keys, 2)
	assert.Equal(t, keys[0], keys[1], "the second charge carries the same key")
}

func TestATamperedPayloadIsReturnedAndRunsNothing(t *testing.T) {
	shop := &shop{}
	handle := sagalambda.SQS(shop.on(t, newStore()), sagalambda.Body[order](keyAt(t, "no")))
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	tampered := message(t, "m2", "", "o-1")
	tampered.Body = `{"no":"o-1","amount":1}`
	resp, err = handle(t.Context(), queue(tampered))
	assert.Equal(t, []string{"m2"}, returned(t, resp, err))
	assert.Len(t, shop.charged, 1)
	same := message(t, "m3", "", "o-1")
	same.Body = ` { "amount" : 1.2e3 , "no" : "o-1" } `
	resp, err = handle(t.Context(), queue(same))
	assert.Empty(t, returned(t, resp, err), "other white space and order are the same content")
}

func TestParallelInvocationsWithOneKeyHaveOneEffect(t *testing.T) {
	store, shop := newStore(), &shop{}
	var all sync.WaitGroup
	for environment := range 4 {
		handle := sagalambda.SQS(shop.on(t, store), byNo)
		all.Go(func() {
			for delivery := range 30 {
				resp, err := handle(t.Context(), queue(message(t, fmt.Sprint(environment, delivery), "", "o-1")))
				if assert.NoError(t, err) && len(resp.BatchItemFailures) == 0 {
					return
				}
			}
			assert.Fail(t, "it was never acknowledged")
		})
	}
	all.Wait()
	assert.Len(t, shop.charged, 1)
	assert.Len(t, shop.reserved, 1)
}

func TestAStepThatChangesItsInputChangesNothing(t *testing.T) {
	type input = map[string]any
	var seen []string
	look := func(name string) *steps.Step[input, steps.None] {
		return steps.Do(name, func(_ context.Context, r *steps.Run[input]) error {
			seen = append(seen, fmt.Sprint(r.Input["no"]))
			r.Input["no"] = "changed"
			delete(r.Input, "amount")
			return nil
		})
	}
	o, err := saga.New(saga.Define("look", saga.NoResult[input], look("one"), look("two")), newStore())
	require.NoError(t, err)
	handle := sagalambda.SQS(o, sagalambda.Body[input](keyAt(t, "no")))
	event := queue(message(t, "m1", "", "o-1"))
	before := event.Records[0].Body
	for range 2 {
		resp, err := handle(t.Context(), event)
		assert.Empty(t, returned(t, resp, err), "the second time its content is still the same")
	}
	assert.Equal(t, []string{"o-1", "o-1"}, seen)
	assert.Equal(t, before, event.Records[0].Body)
}

func TestFalsyResultsAreResults(t *testing.T) {
	for name, result := range map[string]any{"zero": json.Number("0"), "false": false, "an empty text": "", "an empty list": []any{}, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			o, err := saga.New(saga.Once("falsy", func(context.Context, *steps.Run[order]) (any, error) { calls++; return result, nil }), newStore())
			require.NoError(t, err)
			call := sagalambda.Invoke(o, func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })
			var answers []string
			for range 2 {
				out, err := call(t.Context(), order{No: "o-1"})
				require.NoError(t, err)
				raw, err := json.Marshal(out)
				require.NoError(t, err)
				answers = append(answers, string(raw))
			}
			assert.Equal(t, 1, calls)
			assert.Equal(t, answers[0], answers[1])
		})
	}
}

// There is no hook that changes what a replay returns: it is the same result. That it was one is told.
func TestAReplayIsTheSameResultAndTheListenerIsTold(t *testing.T) {
	var told []string
	replayed := saga.Listener{RunReplayed: func(_ context.Context, e saga.RunEvent) { told = append(told, e.Key.ID+" "+string(e.Status)) }}
	shop := &shop{}
	call := sagalambda.Invoke(shop.on(t, newStore(), saga.WithListener(replayed)), func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })
	first, err := call(t.Context(), order{No: "o-1"})
	require.NoError(t, err)
	assert.Empty(t, told)
	second, err := call(t.Context(), order{No: "o-1"})
	require.NoError(t, err)
	assert.Equal(t, first, second)
	assert.Equal(t, []string{"o-1 COMPLETED"}, told)
}

func TestSagasShareATable(t *testing.T) {
	store, calls := newStore(), map[string]int{}
	for _, name := range []string{"bill", "ship"} {
		o, err := saga.New(saga.Once(name, func(context.Context, *steps.Run[order]) (string, error) { calls[name]++; return name, nil }), store)
		require.NoError(t, err)
		for range 2 {
			out, err := sagalambda.Invoke(o, func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })(t.Context(), order{No: "o-1"})
			require.NoError(t, err)
			assert.Equal(t, name, out)
		}
	}
	assert.Equal(t, map[string]int{"bill": 1, "ship": 1}, calls)
}

// unreachable is a store that can't be reached at first.
type unreachable struct {
	state.Store
	down bool
}

func (u *unreachable) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	if u.down {
		return nil, errors.New("no route")
	}
	return u.Store.Create(ctx, rec)
}

func TestNothingRunsWhileTheStoreCantBeReached(t *testing.T) {
	clk := new(clock.Fake)
	clk.AutoAdvance()
	store, shop := &unreachable{memory.New(memory.WithClock(clk)), true}, &shop{}
	handle := sagalambda.SQS(shop.on(t, store, saga.WithClock(clk)), byNo)
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	assert.Empty(t, shop.reserved)
	store.down = false
	resp, err = handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	assert.Len(t, shop.charged, 1)
}

func TestAFailureIsTheSameOnEveryDelivery(t *testing.T) {
	shop := &shop{charge: func(context.Context, *orderRun) error { return permanent(errDeclined) }}
	call := sagalambda.Invoke(shop.on(t, newStore()), func(m events.SQSMessage) (saga.Key, order, error) { return byNo(m) })
	var words []string
	for range 2 {
		_, err := call(t.Context(), message(t, "m1", "", "o-1"))
		require.ErrorIs(t, err, saga.ErrFailed)
		words = append(words, err.Error())
	}
	assert.Equal(t, words[0], words[1])
	assert.Len(t, shop.released, 1)
}

func TestTheDocumentationNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/lambda.md")
	require.NoError(t, err)
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	var code strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") {
			text, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			code.Write(text)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	assert.GreaterOrEqual(t, len(names), 12)
	for _, name := range names {
		assert.Contains(t, code.String(), "func "+name[1]+"(", "docs/lambda.md")
	}
	for _, row := range table[1:] {
		name := regexp.MustCompile("`saga\\." + errorName(t, row.kind) + "`[^|]*\\| (acknowledged|delivered again)").FindStringSubmatch(string(page))
		if assert.NotNil(t, name, "docs/lambda.md has no row of %v", row.kind) {
			assert.Equal(t, row.acknowledged, name[1] == "acknowledged", "docs/lambda.md about %v", row.kind)
		}
	}
}

// errorName is the Go name of a kind.
func errorName(t *testing.T, kind error) string {
	t.Helper()
	names := map[error]string{saga.ErrFailed: "ErrFailed", saga.ErrBlocked: "ErrBlocked", saga.ErrInProgress: "ErrInProgress", saga.ErrInterrupted: "ErrInterrupted",
		saga.ErrReversed: "ErrReversed", saga.ErrPayloadMismatch: "ErrPayloadMismatch", saga.ErrLeaseLost: "ErrLeaseLost", saga.ErrDefinitionChanged: "ErrDefinitionChanged",
		saga.ErrInvalidKey: "ErrInvalidKey", saga.ErrInvalidInput: "ErrInvalidInput", saga.ErrTooLarge: "ErrTooLarge", saga.ErrStore: "ErrStore",
		saga.ErrNotFound: "ErrNotFound", saga.ErrNotAllowed: "ErrNotAllowed"}
	require.Contains(t, names, kind)
	return names[kind]
}

package saga_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// What becomes of the table's items and of its index while the engine runs sagas.

// looker is a store on a table that a test looks into past the store.
type looker struct {
	state.Store
	t      *testing.T
	proxy  *dynamotest.Proxy
	client *dynamodb.Client
	table  string
}

// eachLooker runs f on a server that sends the old item on a failed condition, and on one that doesn't.
func eachLooker(t *testing.T, f func(t *testing.T, clk *clock.Fake, l *looker)) {
	t.Helper()
	for name, allOld := range map[string]bool{"all old": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := new(clock.Fake)
			clk.AutoAdvance()
			proxy := dynamotest.Start(t, allOld)
			client, table := dynamoTable(t, proxy.URL)
			s, err := dynamostore.New(client, table, dynamostore.WithClock(clk))
			require.NoError(t, err)
			f(t, clk, &looker{s, t, proxy, client, table})
		})
	}
}

// items are the run's items by their part, expired ones included.
func (l *looker) items(key string) map[string]map[string]types.AttributeValue {
	l.t.Helper()
	out, err := l.client.Query(l.t.Context(), &dynamodb.QueryInput{
		TableName: aws.String(l.table), KeyConditionExpression: aws.String("idempotency_key = :k"), ConsistentRead: aws.Bool(true),
		ExpressionAttributeValues: map[string]types.AttributeValue{":k": &types.AttributeValueMemberS{Value: key}},
	})
	require.NoError(l.t, err)
	found := map[string]map[string]types.AttributeValue{}
	for _, it := range out.Items {
		found[it["part"].(*types.AttributeValueMemberS).Value] = it
	}
	return found
}

// openEntries are the keys in the index of open runs.
func openEntries(t *testing.T, client *dynamodb.Client, table string) (keys []string) {
	t.Helper()
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table), IndexName: aws.String("open")})
	require.NoError(t, err)
	require.Nil(t, out.LastEvaluatedKey)
	for _, it := range out.Items {
		keys = append(keys, it["idempotency_key"].(*types.AttributeValueMemberS).Value)
	}
	return keys
}

// open tells whether theKey's run is in the index.
func (l *looker) open() bool {
	l.t.Helper()
	keys := openEntries(l.t, l.client, l.table)
	require.LessOrEqual(l.t, len(keys), 1)
	return slices.Contains(keys, "t#chain#1")
}

// A record that is deleted while it is being worked on, wherever the holder is, is a lost lease: nothing of it is written
// anew, and the key is as new.
func TestARecordThatIsDeletedInMidRunIsALostLease(t *testing.T) {
	t.Parallel()
	const large = 2000 // bytes of a result that has an item of its own
	for name, where := range map[string]struct {
		step, undo string // in which call it is deleted
		fails      string // the step that fails for good
		size       int    // of the results
	}{
		"in the first step":                   {step: "s1"},
		"in a step in the middle":             {step: "s2"},
		"in the last step":                    {step: "s3"},
		"in a step with a large result":       {step: "s2", size: large},
		"in a step that fails":                {step: "s2", fails: "s2"},
		"in a compensation":                   {undo: "s2", fails: "s3"},
		"in the last compensation":            {undo: "s1", fails: "s3"},
		"in a compensation, of large results": {undo: "s1", fails: "s3", size: large},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachLooker(t, func(t *testing.T, clk *clock.Fake, l *looker) {
				p, deleted := new(participant), false
				vanish := func(context.Context, *orderRun) error {
					if deleted {
						return nil
					}
					deleted = true
					if err := l.Delete(t.Context(), "t#chain#1"); err != nil {
						return err
					}
					require.NotContains(t, l.items("t#chain#1"), "run")
					return nil
				}
				c := chain{p: p, before: at(where.step, vanish), beforeUndo: at(where.undo, vanish), after: at(where.fails, func(context.Context, *orderRun) error {
					return steps.Permanent(errRefuse)
				})}
				if where.size > 0 {
					c.declare = largeResults(p, c, where.size)
				}
				_, err := newSaga(t, c.of(3), l, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				sagaError(t, err, saga.ErrLeaseLost)
				require.True(t, deleted)
				calls := p.all()
				for part := range l.items("t#chain#1") {
					require.True(t, strings.HasPrefix(part, "/step/"), "%s: payloads whose write may be on its way are left to expire", part)
					require.Positive(t, where.size)
				}
				require.Empty(t, openEntries(t, l.client, l.table))
				_, err = l.Get(t.Context(), "t#chain#1")
				require.ErrorIs(t, err, state.ErrNotFound)

				got, err := newSaga(t, chain{p: p}.of(3), l, saga.WithClock(clk)).Run(t.Context(), theKey, theOrder)
				require.NoError(t, err, "a new run")
				require.Len(t, got, 3)
				require.Len(t, p.all(), len(calls)+3)
				require.Equal(t, 1, recordOf(t, l, theKey, "chain").Runs)
				require.Empty(t, openEntries(t, l.client, l.table))
			})
		})
	}
}

// largeResults makes every step's voucher this large, with the chain's own hooks.
func largeResults(p *participant, c chain, size int) func(int, *steps.Step[order, voucher]) {
	return func(_ int, step *steps.Step[order, voucher]) {
		*step = *steps.New(step.Name(), func(ctx context.Context, r *orderRun) (voucher, error) {
			if err := hooked(ctx, r, c.before); err != nil {
				return voucher{}, err
			}
			p.do(r.Step(), r.IdempotencyKey())
			return voucher{strings.Repeat("v", size)}, hooked(ctx, r, c.after)
		}).Compensate(func(ctx context.Context, r *orderRun, _ steps.Outcome[voucher]) error {
			return hooked(ctx, r, c.beforeUndo)
		}).Retry(once).CompensateRetry(once)
	}
}

// While its holder is within a step, the heartbeat finds that the record is gone, and the step is called off.
func TestAStepIsCalledOffWhenItsRecordIsDeleted(t *testing.T) {
	t.Parallel()
	client, table := dynamoTable(t, dynamotest.Start(t, true).URL)
	store, err := dynamostore.New(client, table)
	require.NoError(t, err)
	var cause error
	c := chain{p: new(participant), before: at("s2", func(ctx context.Context, _ *orderRun) error {
		if err := store.Delete(t.Context(), "t#chain#1"); err != nil {
			return err
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return cause
	})}
	_, err = newSaga(t, c.of(3), store, saga.WithLease(shortLease)).Run(t.Context(), theKey, theOrder)
	sagaError(t, err, saga.ErrLeaseLost)
	require.ErrorIs(t, cause, saga.ErrLeaseLost)
	_, err = store.Get(t.Context(), "t#chain#1")
	require.ErrorIs(t, err, state.ErrNotFound)
	require.Empty(t, openEntries(t, client, table))
}

// A record that has expired is as good as gone while the table still has it: for a call with the same key, for one with
// other content, and for whoever asks.
func TestARecordThatHasExpiredIsGoneThoughTheTableStillHasIt(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]string{"completed": "", "failed": "s2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachLooker(t, func(t *testing.T, clk *clock.Fake, l *looker) {
				p := new(participant)
				c := chain{p: p, before: at(fails, failing(steps.Permanent(errRefuse)))}
				o := newSaga(t, c.of(2).Retention(time.Hour), l, saga.WithClock(clk))
				run := func(in order) error {
					_, err := o.Run(t.Context(), theKey, in)
					if fails != "" {
						sagaError(t, err, saga.ErrFailed)
						return nil
					}
					return err
				}
				require.NoError(t, run(theOrder))
				first := recordOf(t, l, theKey, "chain")
				calls := len(p.all())
				clk.Set(first.ExpiresAt.Add(-time.Millisecond))
				require.NoError(t, run(theOrder))
				require.Len(t, p.all(), calls, "a replay")

				clk.Set(first.ExpiresAt)
				require.Contains(t, l.items("t#chain#1"), "run", "the table still has it")
				_, err := o.Get(t.Context(), theKey)
				sagaError(t, err, saga.ErrNotFound)
				_, err = o.Resume(t.Context(), theKey)
				sagaError(t, err, saga.ErrNotFound)
				sagaError(t, o.Cancel(t.Context(), theKey, "why"), saga.ErrNotFound)
				sagaError(t, o.Reverse(t.Context(), theKey, "why"), saga.ErrNotFound)
				require.Len(t, p.all(), calls)

				require.NoError(t, run(order{No: "another", Amount: 1}), "not even its content counts any more")
				require.Len(t, p.all(), 2*calls)
				again := recordOf(t, l, theKey, "chain")
				require.Equal(t, 1, again.Runs)
				require.NotEqual(t, first.PayloadHash, again.PayloadHash)
				require.Empty(t, openEntries(t, l.client, l.table))
			})
		})
	}
}

// A run is in the index exactly while it has not ended or has unsent messages.
func TestIndexEntriesComeAndGoWithTheEnginesRuns(t *testing.T) {
	t.Parallel()
	eachLooker(t, func(t *testing.T, clk *clock.Fake, l *looker) {
		var sent []string
		publisher := outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
			results := make([]outbox.Result, len(msgs))
			for i, m := range msgs {
				sent, results[i].ID = append(sent, m.ID), m.ID
			}
			return results, nil
		})
		relay, err := outbox.NewRelay(l, publisher, outbox.WithClock(clk))
		require.NoError(t, err)
		isOpen := func(context.Context, *orderRun) error { require.True(t, l.open(), "at work"); return nil }
		permanently, undoFails := steps.Permanent(errRefuse), false
		undo := func(ctx context.Context, r *orderRun) error {
			if undoFails {
				return permanently
			}
			return isOpen(ctx, r)
		}
		emit := func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "news", Body: 1})
			return nil
		}
		saga2 := func(after func(context.Context, *orderRun) error) *saga.Orchestrator[order, []string] {
			return newSaga(t, chain{p: new(participant), before: isOpen, after: after, beforeUndo: undo}.of(2), l, saga.WithClock(clk))
		}
		run := func(after func(context.Context, *orderRun) error) error {
			_, err := saga2(after).Run(t.Context(), theKey, theOrder)
			return err
		}
		ends := func(want state.Status) {
			t.Helper()
			require.Equal(t, want, recordOf(t, l, theKey, "chain").Status)
			require.Equal(t, !want.Ended(), l.open(), string(want))
			if want.Ended() {
				require.NoError(t, l.Delete(t.Context(), "t#chain#1"))
			}
		}

		require.NoError(t, run(nil))
		ends(state.StatusCompleted)
		require.ErrorIs(t, run(at("s2", failing(permanently))), saga.ErrFailed)
		ends(state.StatusFailed)

		require.ErrorIs(t, run(at("s2", failing(errBusy))), saga.ErrInterrupted)
		ends(state.StatusInterrupted)
		require.NoError(t, run(nil))
		ends(state.StatusCompleted)

		require.ErrorIs(t, run(at("s1", failing(errBusy))), saga.ErrInterrupted)
		require.NoError(t, saga2(nil).Cancel(t.Context(), theKey, "why"))
		ends(state.StatusFailed)

		undoFails = true
		require.ErrorIs(t, run(at("s2", failing(permanently))), saga.ErrBlocked)
		ends(state.StatusBlocked)
		undoFails = false
		require.NoError(t, saga2(nil).Retry(t.Context(), theKey, "mended"))
		ends(state.StatusCompensating)
		clk.Advance(time.Hour)
		recovered, err := saga.Recover(t.Context(), saga2(nil))
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Failed: 1}, recovered)
		ends(state.StatusFailed)

		require.NoError(t, run(nil))
		require.False(t, l.open())
		require.NoError(t, saga2(nil).Reverse(t.Context(), theKey, "why"), "it enters again, and leaves again")
		ends(state.StatusReversed)

		require.NoError(t, run(emit))
		require.True(t, l.open(), "completed, with unsent messages")
		require.NoError(t, relay.Drain(t.Context()))
		require.Len(t, sent, 2)
		ends(state.StatusCompleted)
		require.Empty(t, slices.Collect(maps.Keys(l.items("t#chain#1"))))
	})
}

// A holder that dies leaves its run in the index, until another has ended it.
func TestTheRunOfADeadHolderIsInTheIndexUntilItHasEnded(t *testing.T) {
	t.Parallel()
	eachLooker(t, func(t *testing.T, clk *clock.Fake, l *looker) {
		mortal := newSaga(t, chain{p: new(participant)}.of(2), &mute{l}, saga.WithClock(clk))
		_, err := mortal.Run(t.Context(), theKey, theOrder)
		require.Error(t, err)
		require.True(t, l.open())
		lapse(clk)
		recovered, err := saga.Recover(t.Context(), newSaga(t, chain{p: new(participant)}.of(2), l, saga.WithClock(clk)))
		require.NoError(t, err)
		require.Equal(t, saga.Recovered{Completed: 1}, recovered)
		require.False(t, l.open())
	})
}

// The index may lag behind. What recovery finds there is true of the record or left alone, and what it doesn't find yet it
// finds later.
func TestRecoveryGoesByTheRecordWhereTheIndexLags(t *testing.T) {
	t.Parallel()
	eachLooker(t, func(t *testing.T, clk *clock.Fake, l *looker) {
		p := new(participant)
		fails := true
		o := newSaga(t, chain{p: p, before: at("s2", func(context.Context, *orderRun) error {
			if fails {
				return steps.RetryAfter(time.Minute, errBusy)
			}
			return nil
		})}.of(2), l, saga.WithClock(clk))
		recovers := func() saga.Recovered {
			got, err := saga.Recover(t.Context(), o)
			require.NoError(t, err)
			return got
		}
		require.Zero(t, recovers())
		l.proxy.FreezeIndexes(true)
		_, err := o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		clk.Advance(time.Hour)
		require.Zero(t, recovers(), "the index doesn't show it yet")

		l.proxy.FreezeIndexes(false)
		require.Equal(t, saga.Recovered{Interrupted: 1}, recovers())
		l.proxy.FreezeIndexes(true)
		clk.Advance(time.Hour)
		fails = false
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		before := recordOf(t, l, theKey, "chain")
		require.Zero(t, recovers(), "the index shows it still")
		require.Equal(t, before, recordOf(t, l, theKey, "chain"))
		require.Equal(t, []string{"s1", "s2"}, p.seen())
		require.Empty(t, openEntries(t, l.client, l.table))
	})
}

// mute is a store to which a holder's writes don't come through.
type mute struct{ state.Store }

func (*mute) Commit(context.Context, *state.Change) error { return errors.New("no route") }

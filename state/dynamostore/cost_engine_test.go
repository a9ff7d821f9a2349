package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The table of costs once more, by the engine.

type order struct {
	Text string `json:"text"`
}

type outcome struct {
	Text string `json:"text"`
}

// sized is an outcome of n bytes of JSON.
func sized(n int) outcome { return outcome{strings.Repeat("r", n-len(`{"text":""}`))} }

func orderOf(n int) order { return order{strings.Repeat("i", n-len(`{"text":""}`))} }

// chain is a definition of steps named alike, each with a result of that many bytes. before is called in front of each.
func chain(n, result int, before func(r *steps.Run[order], i int) error) *saga.Definition[order, outcome] {
	declared := make([]steps.Declared[order], n)
	for i := range declared {
		name := padded(fmt.Sprintf("step_%d_", i), nameLength)
		declared[i] = steps.New(name, func(_ context.Context, r *steps.Run[order]) (outcome, error) {
			return sized(result), before(r, i)
		}).NoCompensation()
	}
	return saga.Define("create_order", func(context.Context, *steps.Run[order]) (outcome, error) { return sized(60), nil }, declared...)
}

func nothing(*steps.Run[order], int) error { return nil }

// engineKey is a key whose encoded form has 64 bytes.
func engineKey() saga.Key {
	return saga.Key{Tenant: "tenant-a", ID: padded("order-", keyLength-len("tenant-a#create_order#"))}
}

func runChain(t *testing.T, s state.Store, d *saga.Definition[order, outcome], input int, opts ...saga.Option) {
	t.Helper()
	o, err := saga.New(d, s, opts...)
	require.NoError(t, err)
	got, err := o.Run(t.Context(), engineKey(), orderOf(input))
	require.NoError(t, err)
	assert.Equal(t, sized(60), got)
}

func TestEngineCostOfARun(t *testing.T) {
	s := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, s, chain(5, 60, nothing), 100)
	s.costs(t, 6, 0)
	runChain(t, s, chain(5, 60, nothing), 100)
	s.costs(t, 1, 0)
}

func TestEngineCostOfARunInTheIndex(t *testing.T) {
	s := newMetered(t)
	runChain(t, s, chain(5, 60, nothing), 100)
	s.costs(t, 8, 0)
}

func TestEngineCostOfAResume(t *testing.T) {
	s := newMetered(t, dynamostore.WithoutIndex())
	o, err := saga.New(chain(5, 60, nothing), dieAt(s.Store, 3))
	require.NoError(t, err)
	_, err = o.Run(t.Context(), engineKey(), orderOf(100))
	require.ErrorIs(t, err, saga.ErrInterrupted)
	// Two steps are recorded, and the process has died in the third; the next one comes when its lease has lapsed.
	s.costs(t, 3, 0)
	runChain(t, lapsed{s.Store}, chain(5, 60, nothing), 100)
	s.costs(t, 1+1+3, 1) // the refused Create, the take-up, and what was left
}

// mortal is a store that answers no Commit from number n on: the process is as good as dead.
type mortal struct {
	*dynamostore.Store
	left *int
}

func dieAt(s *dynamostore.Store, n int) mortal { return mortal{s, &n} }

var errDead = errors.New("dead")

func (m mortal) Commit(ctx context.Context, ch *state.Change) error {
	*m.left--
	if *m.left <= 0 {
		return errDead
	}
	return m.Store.Commit(ctx, ch)
}

// lapsed is a store as it shows when the lease of the run is over.
type lapsed struct{ *dynamostore.Store }

func (l lapsed) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	existing, err := l.Store.Create(ctx, rec)
	if existing != nil && existing.Status == state.StatusInProgress {
		existing.LeaseUntil = time.Now().Add(-time.Second)
	}
	return existing, err
}

func TestEngineCostOfLargeResults(t *testing.T) {
	s := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, s, chain(20, 1800, nothing), 100)
	s.costs(t, 36+2*20, 0)
}

func TestEngineCostOfALargeInput(t *testing.T) {
	s := newMetered(t, dynamostore.WithoutIndex())
	runChain(t, s, chain(5, 60, nothing), 30_000)
	s.costs(t, 6+30, 1)
}

func TestEngineCostOfAMessage(t *testing.T) {
	for at := range 5 {
		t.Run(fmt.Sprintf("from step %d", at), func(t *testing.T) {
			s := newMetered(t, dynamostore.WithoutIndex())
			sent := 0
			publisher := outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
				sent += len(msgs)
				results := make([]outbox.Result, len(msgs))
				for i, m := range msgs {
					results[i].ID = m.ID
				}
				return results, nil
			})
			relay, err := outbox.NewRelay(s.Store, publisher)
			require.NoError(t, err)
			emit := func(r *steps.Run[order], i int) error {
				if i == at {
					r.Emit(outbox.Message{Topic: "order-created", Key: "order-001", Body: sized(100)})
				}
				return nil
			}
			runChain(t, s, chain(5, 60, emit), 100, saga.WithRelay(relay))
			assert.Equal(t, 1, sent)
			s.costs(t, 9, 0)
			rec, err := s.Get(t.Context(), keyString(t))
			require.NoError(t, err)
			assert.Empty(t, rec.Outbox.Messages)
			assert.False(t, rec.ExpiresAt.IsZero())
		})
	}
}

func keyString(t *testing.T) string {
	t.Helper()
	k := engineKey()
	k.Operation = "create_order"
	s, err := k.Encode()
	require.NoError(t, err)
	return s
}

//go:build linux

package sagalambda_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// The whole chain: a queue on an SQS server, a poller that is the event source mapping, two environments of a function in
// emulators, and one table. A function is killed in its second step with all that it was at work on, some messages come
// twice, and one can't be handled.
func TestFromTheQueueThroughAKilledFunctionToTheTable(t *testing.T) {
	t.Parallel()
	s := tableSite(t)
	const receives, tasks, messages = 4, 12, 16
	m := newMapping(t, false, receives, 1+int(functionTimeout/time.Second), nil)
	for i := range messages {
		in := task{ID: fmt.Sprint("t-", i%tasks)}
		if i%tasks == 3 {
			in.Dies = "stop"
		}
		m.send(t, "", taskText(t, in))
	}
	const poison = `{"id":null}`
	m.send(t, "", poison)

	seen := s.drain(t, m, 2)
	assert.Equal(t, messages, seen.acknowledged)
	assert.Positive(t, seen.partial, "some answers were partial")
	if assert.Len(t, seen.deaths, 1) {
		assert.ErrorContains(t, seen.deaths[0], "timed out")
	}
	dead := m.dead.Receive(t)
	require.Len(t, dead, 1)
	assert.Equal(t, poison, *dead[0].Body)

	calls, store := s.effects(t), s.store(t)
	assert.Len(t, calls, 2*tasks)
	for i := range tasks {
		key := saga.Key{Operation: "task", ID: fmt.Sprint("t-", i)}
		rec, err := store.Get(t.Context(), key.String())
		require.NoError(t, err)
		assert.Equal(t, state.StatusCompleted, rec.Status)
		for _, step := range []string{"one", "two"} {
			n := calls[key.String()+"/"+step]
			assert.True(t, n == 1 || n == 2 && rec.Runs > 1, "%d calls of %s of %s, in %d runs", n, step, key, rec.Runs)
		}
	}
	killed, err := store.Get(t.Context(), "#task#t-3")
	require.NoError(t, err)
	assert.Equal(t, 2, killed.Runs, "the redelivery has gone on with it")
	assert.Equal(t, 1, calls["#task#t-3/one"], "what was recorded isn't called again")
	assert.Equal(t, 1, calls["#task#t-3/two"])
	assertNothingOpen(t, store)
}

// drained is what a poller has seen until its queue was empty.
type drained struct {
	acknowledged int
	// partial is how many invocations gave some messages back and not all.
	partial int
	// deaths are the invocations whose function died.
	deaths []error
}

// drain polls with this many environments until the queue is empty.
func (s *site) drain(t *testing.T, m *mapping, environments int) (seen drained) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var mu sync.Mutex
	var pollers sync.WaitGroup
	for range environments {
		e := s.environment(t)
		pollers.Go(func() {
			for ctx.Err() == nil {
				received, acknowledged, err := m.invoke(ctx, e.handle)
				mu.Lock()
				seen.add(t, ctx, received, acknowledged, err)
				mu.Unlock()
				if received == 0 {
					_ = clock.System().Sleep(ctx, 50*time.Millisecond) // its end shows above
				}
			}
		})
	}
	assert.Eventually(t, func() bool { return m.left(t) == 0 }, 80*time.Second, 100*time.Millisecond)
	cancel()
	pollers.Wait()
	return seen
}

func (d *drained) add(t *testing.T, ctx context.Context, received, acknowledged int, err error) {
	t.Helper()
	d.acknowledged += acknowledged
	switch {
	case errors.Is(err, errDied):
		d.deaths = append(d.deaths, err)
	case ctx.Err() == nil:
		assert.NoError(t, err)
	}
	if acknowledged > 0 && acknowledged < received {
		d.partial++
	}
}

// assertNothingOpen: nothing stays behind among what is open, which on a table is an index.
func assertNothingOpen(t *testing.T, store state.Store) {
	t.Helper()
	open, err := store.List(t.Context(), state.Query{Statuses: []state.Status{state.StatusInProgress, state.StatusInterrupted, state.StatusCompensating, state.StatusBlocked}})
	require.NoError(t, err)
	assert.Empty(t, open.Records)
}

//go:build linux

package sagalambda_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// These tests run a function in the Lambda runtime interface emulator, which kills it at its timeout.

func TestAFunctionThatDiesInTheSecondStepGoesOnWithTheNextDelivery(t *testing.T) {
	t.Parallel()
	for dies, twice := range map[string]int{"stop": 1, "exit": 2} {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			s := fileSite(t)
			e, store := s.environment(t), s.store(t)
			message := []events.SQSMessage{taskMessage(t, "m1", task{ID: "t-1", Dies: dies})}
			again, err := e.deliver(t.Context(), message)
			require.NoError(t, err)
			require.Equal(t, message, again, "the first delivery dies")
			died := time.Now()
			assert.Equal(t, state.StatusInProgress, statusOf(t, store, "t-1"))
			require.Eventually(t, func() bool {
				again, err = e.deliver(t.Context(), again)
				return assert.NoError(t, err) && len(again) == 0
			}, time.Minute, 200*time.Millisecond)
			assert.Less(t, time.Since(died), functionTimeout+20*time.Second, "no longer than the lease, and the time to start")
			assert.Equal(t, state.StatusCompleted, statusOf(t, store, "t-1"))
			assert.Equal(t, map[string]int{"#task#t-1/one": 1, "#task#t-1/two": twice}, s.effects(t), "a second call carries the same key")
		})
	}
}

// A step that would take longer than the function may is called off, so that the function answers, and isn't killed.
func TestAFunctionAnswersBeforeItIsKilled(t *testing.T) {
	t.Parallel()
	s := fileSite(t)
	e, store := s.environment(t, marginVariable+"=1500ms"), s.store(t) // for a machine that is busy
	message := taskMessage(t, "m1", task{ID: "t-1", Dies: "wait"})
	began := time.Now()
	answer, err := e.handle(t.Context(), queue(message, taskMessage(t, "m2", task{ID: "t-2"})))
	require.NoError(t, err, "it has answered")
	assert.Less(t, time.Since(began), functionTimeout)
	assert.Equal(t, []events.SQSBatchItemFailure{{ItemIdentifier: "m1"}}, answer.BatchItemFailures)
	assert.Equal(t, state.StatusInterrupted, statusOf(t, store, "t-1"))
	assert.Equal(t, state.StatusCompleted, statusOf(t, store, "t-2"))
	answer, err = e.handle(t.Context(), queue(message))
	require.NoError(t, err)
	assert.Empty(t, answer.BatchItemFailures, "at once: nobody's lease has to lapse")
	assert.Equal(t, state.StatusCompleted, statusOf(t, store, "t-1"))
	assert.NotContains(t, e.Log(), "Timeout")
}

// Fifty messages, of which twenty are duplicates, over four environments that share one store.
func TestFourEnvironmentsAndDuplicatesHaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deliverDuplicates(t, place(t))
		})
	}
}

func deliverDuplicates(t *testing.T, s *site) {
	t.Helper()
	const messages, tasks = 50, 30
	waiting := make(chan events.SQSMessage, messages)
	for i := range messages {
		waiting <- taskMessage(t, fmt.Sprint("m", i), task{ID: fmt.Sprint("t-", i%tasks)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var left, pollers sync.WaitGroup
	left.Add(messages)
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	for range 4 {
		e := s.environment(t)
		pollers.Go(func() {
			for {
				batch := poll(ctx, waiting, done)
				if len(batch) == 0 {
					return
				}
				again, err := e.deliver(ctx, batch)
				if !assert.NoError(t, err) {
					again = batch
				}
				for _, m := range again {
					waiting <- m
				}
				for range len(batch) - len(again) {
					left.Done()
				}
			}
		})
	}
	pollers.Wait()
	require.NoError(t, ctx.Err(), "everything was acknowledged in time")
	want := map[string]int{}
	store := s.store(t)
	for i := range tasks {
		want[fmt.Sprintf("#task#t-%d/one", i)] = 1
		want[fmt.Sprintf("#task#t-%d/two", i)] = 1
		assert.Equal(t, state.StatusCompleted, statusOf(t, store, fmt.Sprint("t-", i)))
	}
	assert.Equal(t, want, s.effects(t))
	assertNothingOpen(t, store)
}

// poll takes up to five messages; none: everything is acknowledged, or the time is up.
func poll(ctx context.Context, waiting <-chan events.SQSMessage, done <-chan struct{}) (batch []events.SQSMessage) {
	select {
	case m := <-waiting:
		batch = append(batch, m)
	case <-done:
	case <-ctx.Done():
	}
	for len(batch) > 0 && len(batch) < 5 {
		select {
		case m := <-waiting:
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

package sqsoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// seed stores a completed run with n messages unsent, and returns its key.
func seed(t *testing.T, store state.Store, run string, n int) string {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	key, err := state.Key{Operation: "shop", ID: run}.Encode()
	require.NoError(t, err)
	var msgs []outbox.Message
	for i := range n {
		msgs = append(msgs, brokertest.Message(t, run, i, outbox.Message{}))
	}
	_, err = store.Create(t.Context(), &state.Record{
		Key: key, Operation: "shop", Version: 1, Plan: []string{"notify"}, Status: state.StatusInProgress, CurrentStep: "notify",
		Steps: []state.StepRecord{{Name: "notify", Status: state.StepPending}}, PayloadHash: "1:x", Input: []byte(`{}`),
		Owner: "holder", WriteID: "create", Runs: 1, LeaseUntil: now.Add(time.Minute), Revision: 1, CreatedAt: now, UpdatedAt: now,
	})
	require.NoError(t, err)
	require.NoError(t, store.Commit(t.Context(), &state.Change{
		Key: key, IfOwner: "holder", IfRevision: 1, WriteID: "close", Runs: 1, Status: state.StatusCompleted, UpdatedAt: now, Messages: msgs,
		Steps: []state.StepChange{{StepRecord: state.StepRecord{Name: "notify", Status: state.StepDone, Attempts: 1, Output: []byte("null")}}},
	}))
	return key
}

// dying is a source whose relay dies between publishing and removing.
type dying struct{ outbox.Source }

func (dying) Sent(context.Context, outbox.Batch, []string) error { return errors.New("killed") }

func TestRelayThatDiesBeforeRemovingDeliversOneOverFIFO(t *testing.T) {
	q := brokertest.NewQueue(t, true)
	p, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
	require.NoError(t, err)
	store := memory.New()
	for i := range 20 {
		seed(t, store, fmt.Sprint("r", i), 3)
	}
	lease := 300 * time.Millisecond
	dies, err := outbox.NewRelay(dying{store}, p, outbox.WithLease(lease))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for dies.Stats().Sent < 60 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	_ = dies.Drain(ctx)
	require.EqualValues(t, 60, dies.Stats().Sent)

	r, err := outbox.NewRelay(store, p)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.Drain(t.Context()) == nil && r.Stats().Sent == 60 }, 10*time.Second, 20*time.Millisecond)
	byRun := map[string][]string{}
	for _, m := range q.Receive(t) {
		group := m.Attributes["MessageGroupId"]
		byRun[group] = append(byRun[group], *m.Body)
	}
	require.Len(t, byRun, 20)
	for i := range 20 {
		run := fmt.Sprint("r", i)
		assert.Equal(t, []string{run + " 0", run + " 1", run + " 2"}, byRun["#shop#"+run], "one of each, in order")
	}
}

func TestQueueThatIsMissingParksUntilItIsThere(t *testing.T) {
	q := brokertest.NewQueue(t, false)
	p, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
	require.NoError(t, err)
	_, err = q.Client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: aws.String(q.URL)})
	require.NoError(t, err)
	store := memory.New()
	key := seed(t, store, "a", 2)
	r, err := outbox.NewRelay(store, p, outbox.WithMaxRefusals(2), outbox.WithBackoff(time.Millisecond, time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, r.Drain(t.Context()))
	msgs, _, err := store.Parked(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, msgs, 1)
	rec, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	assert.Len(t, rec.Outbox.Messages, 2)
	assert.Contains(t, rec.Outbox.Messages[0].Parked, "NonExistent")

	name := q.URL[strings.LastIndexByte(q.URL, '/')+1:]
	_, err = q.Client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name)})
	require.NoError(t, err)
	require.NoError(t, store.Unpark(t.Context(), msgs[0].ID, true, "the queue is back"))
	require.NoError(t, r.Drain(t.Context()))
	assert.Len(t, q.Receive(t), 2)
}

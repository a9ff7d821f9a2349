package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// mapping is an event source mapping: it polls a queue, invokes the handler with batches, deletes what was acknowledged and
// leaves the rest to the visibility timeout, until the queue's redrive policy moves it to the dead-letter queue.
type mapping struct {
	*brokertest.Queue
	dead   *brokertest.Queue
	handle func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)
}

func newMapping(t *testing.T, fifo bool, receives, visibility int, handle func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) *mapping {
	t.Helper()
	m := &mapping{brokertest.NewQueue(t, fifo), brokertest.NewQueue(t, fifo), handle}
	policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": m.dead.ARN, "maxReceiveCount": receives})
	require.NoError(t, err)
	_, err = m.Client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: aws.String(m.URL),
		Attributes: map[string]string{"RedrivePolicy": string(policy), "VisibilityTimeout": strconv.Itoa(visibility)}})
	require.NoError(t, err)
	return m
}

func (m *mapping) send(t *testing.T, group, body string) {
	t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: aws.String(m.URL), MessageBody: aws.String(body)}
	if group != "" {
		in.MessageGroupId, in.MessageDeduplicationId = aws.String(group), aws.String(brokertest.Unique("d"))
	}
	_, err := m.Client.SendMessage(t.Context(), in)
	require.NoError(t, err)
}

// invoke is one invocation, through handle. It returns how many messages were received, and how many acknowledged. An
// error of the handler leaves all of them to the visibility timeout.
func (m *mapping) invoke(ctx context.Context, handle func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) (received, acknowledged int, err error) {
	out, err := m.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String(m.URL), MaxNumberOfMessages: 10,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
	if err != nil || len(out.Messages) == 0 {
		return 0, 0, err
	}
	var event events.SQSEvent
	for _, msg := range out.Messages {
		event.Records = append(event.Records, events.SQSMessage{MessageId: *msg.MessageId, ReceiptHandle: *msg.ReceiptHandle, Body: *msg.Body,
			Attributes: msg.Attributes, EventSource: "aws:sqs", EventSourceARN: m.ARN})
	}
	resp, err := handle(ctx, event)
	if err != nil {
		return len(out.Messages), 0, err
	}
	again := map[string]bool{}
	for _, f := range resp.BatchItemFailures {
		again[f.ItemIdentifier] = true
	}
	for _, msg := range out.Messages {
		if again[*msg.MessageId] {
			continue
		}
		if _, err := m.Client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: aws.String(m.URL), ReceiptHandle: msg.ReceiptHandle}); err != nil {
			return len(out.Messages), acknowledged, err
		}
		acknowledged++
	}
	return len(out.Messages), acknowledged, nil
}

// poll is one invocation of a handler that always answers. It returns how many messages were acknowledged.
func (m *mapping) poll(t *testing.T) int {
	t.Helper()
	_, acknowledged, err := m.invoke(t.Context(), m.handle)
	require.NoError(t, err)
	return acknowledged
}

// until polls until this many messages were acknowledged.
func (m *mapping) until(t *testing.T, want int) {
	t.Helper()
	got := 0
	require.Eventually(t, func() bool { got += m.poll(t); return got >= want }, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, want, got)
}

// left is how many messages the queue has, those that are being worked on included.
func (m *mapping) left(t *testing.T) int {
	t.Helper()
	out, err := m.Client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: aws.String(m.URL), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	require.NoError(t, err)
	n := 0
	for _, name := range []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible} {
		some, err := strconv.Atoi(out.Attributes[string(name)])
		require.NoError(t, err)
		n += some
	}
	return n
}

func TestServerDeliversUntilEveryEffectHappenedOnceAndTheRestIsInTheDeadLetterQueue(t *testing.T) {
	shop := &shop{}
	interrupted := map[string]bool{}
	shop.charge = func(_ context.Context, r *orderRun) error {
		shop.mu.Lock()
		defer shop.mu.Unlock()
		switch no := r.Input.No; {
		case no == "o-3":
			return permanent(errDeclined)
		case no == "o-5" && !interrupted[no]:
			interrupted[no] = true
			return errors.New("not now")
		}
		return nil
	}
	m := newMapping(t, false, 4, 1, sagalambda.SQS(shop.on(t, newStore(), saga.WithLease(2*time.Second)), sagalambda.Body[order](keyAt(t, "no"))))
	for i := range 15 { // ten orders, five of them twice
		m.send(t, "", text(t, fmt.Sprint("o-", i%10)))
	}
	m.send(t, "", `{"amount":1}`)
	m.until(t, 15)
	var dead []types.Message
	require.Eventually(t, func() bool {
		m.poll(t)
		dead = append(dead, m.dead.Receive(t)...)
		return len(dead) > 0
	}, 30*time.Second, 50*time.Millisecond)
	require.Len(t, dead, 1)
	assert.JSONEq(t, `{"amount":1}`, *dead[0].Body)
	assert.ElementsMatch(t, []string{"o-0", "o-1", "o-2", "o-4", "o-5", "o-6", "o-7", "o-8", "o-9"}, shop.charged)
	assert.Len(t, shop.reserved, 10)
	assert.Equal(t, []string{"o-3"}, shop.released)
}

func TestServerKeepsTheOrderOfAFIFOGroup(t *testing.T) {
	shop := &shop{}
	failed := false
	shop.charge = func(_ context.Context, r *orderRun) error {
		shop.mu.Lock()
		defer shop.mu.Unlock()
		if r.Input.No == "a-2" && !failed {
			failed = true
			return errors.New("not now")
		}
		return nil
	}
	m := newMapping(t, true, 10, 1, sagalambda.SQS(shop.on(t, newStore()), sagalambda.Body[order](keyAt(t, "no"))))
	for _, no := range []string{"a-1", "b-1", "a-2", "a-3", "b-2", "a-4"} {
		m.send(t, no[:1], text(t, no))
	}
	m.until(t, 6)
	var a, b []string
	for _, no := range shop.charged {
		if no[:1] == "a" {
			a = append(a, no)
		} else {
			b = append(b, no)
		}
	}
	assert.Equal(t, []string{"a-1", "a-2", "a-3", "a-4"}, a)
	assert.Equal(t, []string{"b-1", "b-2"}, b)
	assert.Empty(t, m.dead.Receive(t))
}

// A message that never succeeds stops its group, and no other one, until it is in the dead-letter queue; then the group
// goes on in its order.
func TestServerTakesAMessageThatNeverSucceedsOutOfItsGroupsWay(t *testing.T) {
	t.Parallel()
	shop := &shop{}
	m := newMapping(t, true, 2, 1, sagalambda.SQS(shop.on(t, newStore()), sagalambda.Body[order](keyAt(t, "no"))))
	m.send(t, "a", text(t, "a-1"))
	m.send(t, "a", `{"no":null}`)
	for _, no := range []string{"a-2", "b-1", "a-3"} {
		m.send(t, no[:1], text(t, no))
	}
	acknowledged := 0
	require.Eventually(t, func() bool { acknowledged += m.poll(t); return len(shop.charged) >= 2 }, 30*time.Second, 20*time.Millisecond)
	assert.ElementsMatch(t, []string{"a-1", "b-1"}, shop.charged, "what is behind it is held back")
	require.Eventually(t, func() bool { acknowledged += m.poll(t); return m.left(t) == 0 }, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, 4, acknowledged)
	assert.Equal(t, []string{"a-2", "a-3"}, shop.charged[2:])
	dead := m.dead.Receive(t)
	require.Len(t, dead, 1)
	assert.JSONEq(t, `{"no":null}`, *dead[0].Body)
}

package sqsoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithy "github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is SQS as far as a publisher sees it: it holds requests to the limits and fails what it is told to.
type fake struct {
	t        testing.TB
	missing  map[string]bool
	maxSize  string
	requests [][]types.SendMessageBatchRequestEntry
	accepted []string // bodies
	entry    func(types.SendMessageBatchRequestEntry) *types.BatchResultErrorEntry
	whole    func([]types.SendMessageBatchRequestEntry) error
}

func (f *fake) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	if f.missing[*in.QueueUrl] {
		return nil, &types.QueueDoesNotExist{}
	}
	return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"MaximumMessageSize": f.maxSize}}, nil
}

func (f *fake) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	f.requests = append(f.requests, in.Entries)
	assert.LessOrEqual(f.t, len(in.Entries), 10)
	size, groups := 0, map[string]bool{}
	for _, e := range in.Entries {
		size += len(*e.MessageBody)
		for name, v := range e.MessageAttributes {
			size += len(name) + len(*v.DataType) + len(*v.StringValue)
		}
		if e.MessageGroupId != nil {
			assert.False(f.t, groups[*e.MessageGroupId], "one message of a group per request")
			groups[*e.MessageGroupId] = true
		}
	}
	assert.LessOrEqual(f.t, size, 1<<20)
	if f.whole != nil {
		if err := f.whole(in.Entries); err != nil {
			return nil, err
		}
	}
	out := &sqs.SendMessageBatchOutput{}
	for _, e := range in.Entries {
		if f.entry != nil {
			if bad := f.entry(e); bad != nil {
				bad.Id = e.Id
				out.Failed = append(out.Failed, *bad)
				continue
			}
		}
		f.accepted = append(f.accepted, *e.MessageBody)
		out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id, MessageId: aws.String("m")})
	}
	return out, nil
}

const (
	standard = "https://sqs.example/1/orders"
	fifo     = "https://sqs.example/1/orders.fifo"
)

func publisher(t *testing.T, f *fake, url string, opts ...sqsoutbox.Option) *sqsoutbox.Publisher {
	t.Helper()
	f.t = t
	p, err := sqsoutbox.New(t.Context(), f, url, opts...)
	require.NoError(t, err)
	return p
}

func TestNewAsksForEveryQueue(t *testing.T) {
	_, err := sqsoutbox.New(t.Context(), nil, standard)
	require.Error(t, err)
	_, err = sqsoutbox.New(t.Context(), &fake{}, "")
	require.ErrorContains(t, err, "no target")
	_, err = sqsoutbox.New(t.Context(), &fake{}, standard, sqsoutbox.WithEncoder(nil))
	require.Error(t, err)
	_, err = sqsoutbox.New(t.Context(), &fake{missing: map[string]bool{fifo: true}}, standard, sqsoutbox.WithQueue("t", fifo))
	require.ErrorContains(t, err, fifo)
	var missing *types.QueueDoesNotExist
	require.ErrorAs(t, err, &missing)
}

func TestStandardQueueTakesTens(t *testing.T) {
	f := &fake{}
	p := publisher(t, f, standard)
	var msgs []outbox.Message
	for i := range 25 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{}))
	}
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	require.Len(t, res, 25)
	var sizes []int
	for _, r := range f.requests {
		sizes = append(sizes, len(r))
	}
	assert.Equal(t, []int{10, 10, 5}, sizes)
	for i, body := range f.accepted {
		assert.Equal(t, fmt.Sprint("a ", i), body)
	}
	e := f.requests[0][3]
	assert.Nil(t, e.MessageGroupId)
	assert.Nil(t, e.MessageDeduplicationId)
	assert.Equal(t, "#shop#a/notify/3", *e.MessageAttributes["message-id"].StringValue)
	assert.Equal(t, "application/octet-stream", *e.MessageAttributes["content-type"].StringValue)
}

func TestFIFOKeepsTheOrderThroughPartialFailures(t *testing.T) {
	f := &fake{entry: func(e types.SendMessageBatchRequestEntry) *types.BatchResultErrorEntry {
		switch *e.MessageBody {
		case "a 1":
			return &types.BatchResultErrorEntry{Code: aws.String("InternalError"), Message: aws.String("try later")}
		case "c 0":
			return &types.BatchResultErrorEntry{Code: aws.String("InvalidMessageContents"), SenderFault: true}
		case "d 0":
			return &types.BatchResultErrorEntry{Code: aws.String("ThrottlingException"), SenderFault: true}
		}
		return nil
	}}
	p := publisher(t, f, fifo)
	var msgs []outbox.Message
	for _, run := range []string{"a", "b", "c", "d"} {
		for i := range 3 {
			msgs = append(msgs, brokertest.Message(t, run, i, outbox.Message{}))
		}
	}
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"a/0": "sent", "a/1": "failed", "a/2": "held",
		"b/0": "sent", "b/1": "sent", "b/2": "sent",
		"c/0": "refused", "c/1": "held", "c/2": "held",
		"d/0": "failed", "d/1": "held", "d/2": "held",
	}, brokertest.Told(res))
	assert.Equal(t, []string{"a 0", "b 0", "b 1", "b 2"}, f.accepted)
	e := f.requests[0][0]
	assert.Equal(t, "#shop#a", *e.MessageGroupId)
	assert.Regexp(t, "^[a-z2-7]{52}$", *e.MessageDeduplicationId)
	assert.NotEqual(t, *e.MessageDeduplicationId, *f.requests[0][1].MessageDeduplicationId)
}

func TestRequestStaysUnderAMebibyte(t *testing.T) {
	f := &fake{}
	p := publisher(t, f, standard)
	var msgs []outbox.Message
	for i := range 7 {
		msgs = append(msgs, brokertest.Message(t, fmt.Sprint("r", i), 0, outbox.Message{Body: []byte(strings.Repeat("x", 300<<10))}))
	}
	msgs = append(msgs, brokertest.Message(t, "huge", 0, outbox.Message{Body: []byte(strings.Repeat("x", 1<<20))}))
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Len(t, f.requests, 3)
	assert.Equal(t, "refused", brokertest.Told(res)["huge/0"], "its attributes don't fit any more")
	assert.Equal(t, "sent", brokertest.Told(res)["r6/0"])
}

func TestQueueWithALowerLimit(t *testing.T) {
	f := &fake{maxSize: "1024"}
	p := publisher(t, f, standard)
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "b", 0, outbox.Message{Body: []byte(strings.Repeat("x", 1000))}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "sent", "b/0": "refused"}, brokertest.Told(res))
	assert.Len(t, f.accepted, 1)
}

func TestWhatSQSCannotTakeIsRefusedHere(t *testing.T) {
	f := &fake{}
	p := publisher(t, f, "", sqsoutbox.WithQueue("orders", standard))
	many := map[string]string{}
	for i := range 9 {
		many[fmt.Sprint("a", i)] = "v"
	}
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "name", 0, outbox.Message{Attributes: map[string]string{"größe": "1"}}),
		brokertest.Message(t, "many", 0, outbox.Message{Attributes: many}),
		brokertest.Message(t, "empty", 0, outbox.Message{Body: []byte{}}),
		brokertest.Message(t, "topic", 0, outbox.Message{Topic: "unknown"}),
		brokertest.Message(t, "fine", 0, outbox.Message{Attributes: map[string]string{"size": "größe", "nothing": ""}}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"name/0": "refused", "many/0": "refused", "empty/0": "refused", "topic/0": "refused", "fine/0": "sent",
	}, brokertest.Told(res))
	assert.NotContains(t, f.requests[0][0].MessageAttributes, "nothing")
}

func TestErrorsOfAWholeRequest(t *testing.T) {
	msgs := []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "b", 0, outbox.Message{}), brokertest.Message(t, "b", 1, outbox.Message{})}
	for name, tc := range map[string]struct {
		err    error
		outage bool
		calls  int
	}{
		"no connection":   {errors.New("dial tcp: connection refused"), true, 1},
		"throttled":       {&smithy.GenericAPIError{Code: "RequestThrottled"}, true, 1},
		"its own error":   {&smithy.GenericAPIError{Code: "InternalError", Fault: smithy.FaultServer}, true, 1},
		"queue is gone":   {&types.QueueDoesNotExist{}, false, 1},
		"access denied":   {&smithy.GenericAPIError{Code: "AccessDenied"}, false, 1},
		"bad in some way": {&smithy.GenericAPIError{Code: "InvalidParameterValue"}, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{whole: func([]types.SendMessageBatchRequestEntry) error { return tc.err }}
			res, err := publisher(t, f, standard).Publish(t.Context(), msgs)
			assert.Len(t, f.requests, tc.calls)
			if tc.outage {
				require.ErrorIs(t, err, tc.err)
				assert.Empty(t, res)
				return
			}
			require.NoError(t, err)
			got := brokertest.Told(res)
			assert.Equal(t, "refused", got["a/0"])
			assert.Equal(t, "refused", got["b/0"])
			require.Len(t, got, 3)
			assert.NotEqual(t, "sent", got["b/1"])
		})
	}
}

// An outage of one queue doesn't keep messages from another.
func TestQueuesAreIndependent(t *testing.T) {
	f := &fake{whole: func(es []types.SendMessageBatchRequestEntry) error {
		if es[0].MessageGroupId == nil {
			return errors.New("connection reset")
		}
		return nil
	}}
	p := publisher(t, f, standard, sqsoutbox.WithQueue("ordered", fifo))
	res, err := p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "b", 0, outbox.Message{Topic: "ordered"})})
	require.ErrorContains(t, err, "connection reset")
	assert.Equal(t, map[string]string{"b/0": "sent"}, brokertest.Told(res))
}

func TestCloudEventsTravelInEitherMode(t *testing.T) {
	f := &fake{}
	structured, err := outbox.CloudEventsStructured("/shop")
	require.NoError(t, err)
	binary, err := outbox.CloudEventsBinary("/shop")
	require.NoError(t, err)
	m := brokertest.Message(t, "a", 0, outbox.Message{Type: "order.created", Body: map[string]int{"n": 1}})
	for _, enc := range []outbox.Encoder{structured, binary} {
		_, err = publisher(t, f, standard, sqsoutbox.WithEncoder(enc)).Publish(t.Context(), []outbox.Message{m})
		require.NoError(t, err)
	}
	first, second := f.requests[0][0], f.requests[1][0]
	assert.Contains(t, *first.MessageBody, `"data":{"n":1}`)
	assert.Len(t, first.MessageAttributes, 1)
	assert.Equal(t, outbox.ContentTypeCloudEvents, *first.MessageAttributes["content-type"].StringValue)
	assert.Equal(t, `{"n":1}`, *second.MessageBody)
	assert.Equal(t, "order.created", *second.MessageAttributes["ce-type"].StringValue)
	assert.Equal(t, m.ID, *second.MessageAttributes["ce-id"].StringValue)
}

// both asks one client about queues and sends through the other.
type both struct{ asks, sends sqsoutbox.Client }

func (b both) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return b.asks.GetQueueAttributes(ctx, in, o...)
}

func (b both) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, o ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	return b.sends.SendMessageBatch(ctx, in, o...)
}

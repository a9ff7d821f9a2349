package snsoutbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	smithy "github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/snsoutbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is SNS as far as a publisher sees it.
type fake struct {
	t        testing.TB
	missing  string
	maxSize  string
	requests [][]types.PublishBatchRequestEntry
	accepted []string
	entry    func(types.PublishBatchRequestEntry) *types.BatchResultErrorEntry
	whole    error
}

func (f *fake) GetTopicAttributes(_ context.Context, in *sns.GetTopicAttributesInput, _ ...func(*sns.Options)) (*sns.GetTopicAttributesOutput, error) {
	if f.missing == *in.TopicArn {
		return nil, &types.NotFoundException{}
	}
	return &sns.GetTopicAttributesOutput{Attributes: map[string]string{"MaximumMessageSize": f.maxSize}}, nil
}

func (f *fake) PublishBatch(_ context.Context, in *sns.PublishBatchInput, _ ...func(*sns.Options)) (*sns.PublishBatchOutput, error) {
	f.requests = append(f.requests, in.PublishBatchRequestEntries)
	assert.LessOrEqual(f.t, len(in.PublishBatchRequestEntries), 10)
	if f.whole != nil {
		return nil, f.whole
	}
	out, groups := &sns.PublishBatchOutput{}, map[string]bool{}
	for _, e := range in.PublishBatchRequestEntries {
		if e.MessageGroupId != nil {
			assert.False(f.t, groups[*e.MessageGroupId], "one message of a group per request")
			groups[*e.MessageGroupId] = true
		}
		if f.entry != nil {
			if bad := f.entry(e); bad != nil {
				bad.Id = e.Id
				out.Failed = append(out.Failed, *bad)
				continue
			}
		}
		f.accepted = append(f.accepted, *e.Message)
		out.Successful = append(out.Successful, types.PublishBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

const (
	standard = "arn:aws:sns:us-east-1:1:orders"
	fifo     = "arn:aws:sns:us-east-1:1:orders.fifo"
)

func publisher(t *testing.T, f *fake, arn string, opts ...snsoutbox.Option) *snsoutbox.Publisher {
	t.Helper()
	f.t = t
	p, err := snsoutbox.New(t.Context(), f, arn, opts...)
	require.NoError(t, err)
	return p
}

func TestNewAsksForEveryTopic(t *testing.T) {
	_, err := snsoutbox.New(t.Context(), nil, standard)
	require.Error(t, err)
	_, err = snsoutbox.New(t.Context(), &fake{}, "")
	require.ErrorContains(t, err, "no target")
	_, err = snsoutbox.New(t.Context(), &fake{}, standard, snsoutbox.WithEncoder(nil))
	require.Error(t, err)
	_, err = snsoutbox.New(t.Context(), &fake{missing: fifo}, standard, snsoutbox.WithTopic("t", fifo))
	require.ErrorContains(t, err, fifo)
}

func TestFIFOKeepsTheOrderThroughPartialFailures(t *testing.T) {
	f := &fake{entry: func(e types.PublishBatchRequestEntry) *types.BatchResultErrorEntry {
		switch *e.Message {
		case "a 1":
			return &types.BatchResultErrorEntry{Code: aws.String("InternalError")}
		case "c 0":
			return &types.BatchResultErrorEntry{Code: aws.String("InvalidParameter"), SenderFault: true}
		}
		return nil
	}}
	var msgs []outbox.Message
	for _, run := range []string{"a", "b", "c"} {
		for i := range 3 {
			msgs = append(msgs, brokertest.Message(t, run, i, outbox.Message{}))
		}
	}
	res, err := publisher(t, f, fifo).Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"a/0": "sent", "a/1": "failed", "a/2": "held", "b/0": "sent", "b/1": "sent", "b/2": "sent", "c/0": "refused", "c/1": "held", "c/2": "held",
	}, brokertest.Told(res))
	assert.Equal(t, []string{"a 0", "b 0", "b 1", "b 2"}, f.accepted)
}

func TestStandardTopicTakesTensWithinItsSize(t *testing.T) {
	f := &fake{}
	var msgs []outbox.Message
	for i := range 12 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{}))
	}
	res, err := publisher(t, f, standard).Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Len(t, res, 12)
	require.Len(t, f.requests, 2)
	assert.Len(t, f.requests[0], 10)
	assert.Nil(t, f.requests[0][0].MessageGroupId)

	big := func(run string, kib int) outbox.Message {
		return brokertest.Message(t, run, 0, outbox.Message{Body: []byte(strings.Repeat("x", kib<<10))})
	}
	f = &fake{}
	res, err = publisher(t, f, standard).Publish(t.Context(), []outbox.Message{big("a", 200), big("b", 200), big("c", 300)})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "sent", "b/0": "sent", "c/0": "refused"}, brokertest.Told(res))
	assert.Len(t, f.requests, 2, "two of 200 KiB don't fit into one request")

	f = &fake{maxSize: "1048576"}
	res, err = publisher(t, f, standard).Publish(t.Context(), []outbox.Message{big("a", 200), big("b", 200), big("c", 300)})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "sent", "b/0": "sent", "c/0": "sent"}, brokertest.Told(res))
	assert.Len(t, f.requests, 1, "the topic allows more")
}

func TestErrorsOfAWholeRequest(t *testing.T) {
	msgs := []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "b", 0, outbox.Message{Topic: "unknown"})}
	down := errors.New("connection refused")
	f := &fake{whole: down}
	res, err := publisher(t, f, "", snsoutbox.WithTopic("orders", standard)).Publish(t.Context(), msgs)
	require.ErrorIs(t, err, down)
	assert.Equal(t, map[string]string{"b/0": "refused"}, brokertest.Told(res), "no topic for it")

	f = &fake{whole: &smithy.GenericAPIError{Code: "AuthorizationError"}}
	res, err = publisher(t, f, "", snsoutbox.WithTopic("orders", standard)).Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "refused", "b/0": "refused"}, brokertest.Told(res))
}

func TestServerFansOut(t *testing.T) {
	client := sns.NewFromConfig(brokertest.Config(t, brokertest.Endpoint(t, "SNS_ENDPOINT")))
	q := brokertest.NewQueue(t, false)
	arn := topic(t, client, q.ARN, false)
	p, err := snsoutbox.New(t.Context(), client, arn)
	require.NoError(t, err)
	var msgs []outbox.Message
	for i := range 13 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{Attributes: map[string]string{"city": "東京"}}))
	}
	msgs = append(msgs, brokertest.Message(t, "big", 0, outbox.Message{Body: []byte(strings.Repeat("ü", 100_000))}))
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	for id, what := range brokertest.Told(res) {
		assert.Equal(t, "sent", what, id)
	}
	got := q.Receive(t)
	require.Len(t, got, 14)
	for _, m := range got {
		if strings.HasPrefix(*m.Body, "a ") {
			assert.Equal(t, "東京", *m.MessageAttributes["city"].StringValue)
			assert.NotEmpty(t, *m.MessageAttributes["message-id"].StringValue)
		}
	}

	_, err = snsoutbox.New(t.Context(), client, arn+"-missing")
	require.ErrorContains(t, err, "-missing")
	_, err = client.DeleteTopic(t.Context(), &sns.DeleteTopicInput{TopicArn: aws.String(arn)})
	require.NoError(t, err)
	res, err = p.Publish(t.Context(), msgs[:2])
	require.NoError(t, err)
	assert.Equal(t, "refused", brokertest.Told(res)["a/0"])
}

func TestServerFIFODeliversOneInOrder(t *testing.T) {
	client := sns.NewFromConfig(brokertest.Config(t, brokertest.Endpoint(t, "SNS_ENDPOINT")))
	q := brokertest.NewQueue(t, true)
	p, err := snsoutbox.New(t.Context(), client, topic(t, client, q.ARN, true))
	require.NoError(t, err)
	var msgs []outbox.Message
	for _, run := range []string{"a", "b"} {
		for i := range 4 {
			msgs = append(msgs, brokertest.Message(t, run, i, outbox.Message{Key: "order " + run}))
		}
	}
	for range 2 {
		res, err := p.Publish(t.Context(), msgs)
		require.NoError(t, err)
		require.Len(t, res, 8)
	}
	byRun := map[string][]string{}
	for _, m := range q.Receive(t) {
		run, _, _ := strings.Cut(*m.Body, " ")
		byRun[run] = append(byRun[run], *m.Body)
	}
	for _, run := range []string{"a", "b"} {
		assert.Equal(t, []string{run + " 0", run + " 1", run + " 2", run + " 3"}, byRun[run])
	}
}

// topic makes a topic that hands every message on to the queue as it is.
func topic(t *testing.T, client *sns.Client, queueARN string, fifo bool) string {
	t.Helper()
	name := brokertest.Unique("topic")
	var attrs map[string]string
	if fifo {
		name += ".fifo"
		attrs = map[string]string{"FifoTopic": "true"}
	}
	out, err := client.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String(name), Attributes: attrs})
	require.NoError(t, err)
	_, err = client.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: out.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(queueARN),
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	require.NoError(t, err)
	return *out.TopicArn
}

package sqsoutbox_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
)

func TestServerQueueMustExist(t *testing.T) {
	q := brokertest.NewQueue(t, false)
	_, err := sqsoutbox.New(t.Context(), q.Client, strings.Replace(q.URL, "/queue-", "/missing-", 1))
	require.ErrorContains(t, err, "missing-")
}

func TestServerQueueThatIsDeletedRefuses(t *testing.T) {
	q := brokertest.NewQueue(t, false)
	p, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
	require.NoError(t, err)
	_, err = q.Client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: aws.String(q.URL)})
	require.NoError(t, err)
	res, err := p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.NoError(t, err, "an answer, not an outage")
	assert.Equal(t, map[string]string{"a/0": "refused"}, brokertest.Told(res))
}

func TestServerUnreachableIsAnOutage(t *testing.T) {
	q := brokertest.NewQueue(t, false)
	gone := sqs.NewFromConfig(brokertest.Config(t, "http://127.0.0.1:1"))
	p, err := sqsoutbox.New(t.Context(), both{q.Client, gone}, q.URL)
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.Error(t, err)
}

func TestServerTakesTextUnicodeBytesAndSize(t *testing.T) {
	q := brokertest.NewQueue(t, false)
	p, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
	require.NoError(t, err)
	big := strings.Repeat("大", 100_000)
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "text", 0, outbox.Message{Body: map[string]string{"k": "grüße"}, Attributes: map[string]string{"city": "東京 – €"}, Type: "order.created", Key: "o-1"}),
		brokertest.Message(t, "bytes", 0, outbox.Message{Body: []byte{0, 1, 0xff}}),
		brokertest.Message(t, "big", 0, outbox.Message{Body: []byte(big), ContentType: "text/plain"}),
		brokertest.Message(t, "big", 1, outbox.Message{Body: []byte(strings.Repeat("x", 800_000))}),
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"text/0": "sent", "bytes/0": "sent", "big/0": "sent", "big/1": "sent"}, brokertest.Told(res))

	got := map[string]types.Message{}
	for _, m := range q.Receive(t) {
		got[*m.MessageAttributes["message-id"].StringValue] = m
	}
	require.Len(t, got, 4)
	text := got["#shop#text/notify/0"]
	assert.JSONEq(t, `{"k":"grüße"}`, *text.Body)
	attr := func(name string) string { return aws.ToString(text.MessageAttributes[name].StringValue) }
	assert.Equal(t, "東京 – €", attr("city"))
	assert.Equal(t, "order.created", attr("message-type"))
	assert.Equal(t, "o-1", attr("message-key"))
	assert.Equal(t, "application/json", attr("content-type"))
	raw := got["#shop#bytes/notify/0"]
	assert.Equal(t, "base64", *raw.MessageAttributes["body-encoding"].StringValue)
	b, err := base64.StdEncoding.DecodeString(*raw.Body)
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 1, 0xff}, b)
	assert.Equal(t, digest.Short(big, digest.Most), digest.Short(*got["#shop#big/notify/0"].Body, digest.Most), "compared by hash: it is long")
}

func TestServerFIFODeliversOneInOrder(t *testing.T) {
	q := brokertest.NewQueue(t, true)
	p, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
	require.NoError(t, err)
	keys := map[string]string{"plain": "", "spaced": "order 1", "long": strings.Repeat("k", 500), "unicode": "заказ"}
	var msgs []outbox.Message
	for run, key := range keys {
		for i := range 5 {
			msgs = append(msgs, brokertest.Message(t, run, i, outbox.Message{Key: key}))
		}
	}
	for range 2 { // a relay that died before it could say so sends again
		res, err := p.Publish(t.Context(), msgs)
		require.NoError(t, err)
		for id, what := range brokertest.Told(res) {
			require.Equal(t, "sent", what, id)
		}
	}
	byRun := map[string][]string{}
	for _, m := range q.Receive(t) {
		run, _, _ := strings.Cut(*m.Body, " ")
		byRun[run] = append(byRun[run], *m.Body)
	}
	for run := range keys {
		assert.Equal(t, []string{run + " 0", run + " 1", run + " 2", run + " 3", run + " 4"}, byRun[run])
	}
}

package brokertest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

var names atomic.Int64

// Unique is a name that no other test uses, also not one of an earlier run on the same server.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, time.Now().UnixNano(), names.Add(1))
}

// Queue is a queue on the SQS server of the tests, which SQS_ENDPOINT names.
type Queue struct {
	// Client of the server.
	Client *sqs.Client
	// URL and ARN of the queue.
	URL, ARN string
}

// NewQueue makes an empty queue.
func NewQueue(t testing.TB, fifo bool) *Queue {
	t.Helper()
	q := &Queue{Client: sqs.NewFromConfig(Config(t, Endpoint(t, "SQS_ENDPOINT")))}
	name := Unique("queue")
	var attrs map[string]string
	if fifo {
		name += ".fifo"
		attrs = map[string]string{"FifoQueue": "true"}
	}
	out, err := q.Client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name), Attributes: attrs})
	require.NoError(t, err)
	q.URL = *out.QueueUrl
	got, err := q.Client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: out.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	require.NoError(t, err)
	q.ARN = got.Attributes[string(types.QueueAttributeNameQueueArn)]
	return q
}

// Receive takes every message that is in the queue, in the order in which the queue gives them.
func (q *Queue) Receive(t testing.TB) []types.Message {
	t.Helper()
	var all []types.Message
	for {
		out, err := q.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: aws.String(q.URL), MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			all = append(all, m)
			_, err := q.Client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: aws.String(q.URL), ReceiptHandle: m.ReceiptHandle})
			require.NoError(t, err)
		}
	}
}

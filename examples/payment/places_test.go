package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// newAWSFolder is a folder whose processes find a region and credentials in their environment.
func newAWSFolder(t *testing.T) *folder {
	t.Helper()
	f := newFolder(t)
	f.env = []string{"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE=none", "AWS_SHARED_CREDENTIALS_FILE=none"}
	return f
}

// newSQSFolder is one whose processes find the tests' SQS server, which isn't where its queues' URLs say.
func newSQSFolder(t *testing.T) *folder {
	t.Helper()
	f := newAWSFolder(t)
	f.env = append(f.env, "AWS_ENDPOINT_URL_SQS="+brokertest.Endpoint(t, "SQS_ENDPOINT"))
	return f
}

var (
	numbers = regexp.MustCompile(`\border-(001|[0-9a-f]{10,})\b`)
	ids     = regexp.MustCompile(`\b(ch|rs|pt)_[0-9a-f]{8}\b`)
	inQueue = regexp.MustCompile(`the queue: .*\n(  order-created .*\n)*`)
)

// alike takes away in what two walks with different orders differ.
func alike(out string) string {
	return waiting.ReplaceAllString(ids.ReplaceAllString(numbers.ReplaceAllString(out, "order-N"), "${1}_N"), "")
}

// sameWalk checks that out is the walk of the golden file, and returns the order's number.
func sameWalk(t *testing.T, out string, change func(want string) string) (orderNo string) {
	t.Helper()
	want, err := os.ReadFile("testdata/walk.golden")
	require.NoError(t, err)
	assert.Equal(t, change(alike(string(want))), alike(out))
	orderNo = numbers.FindString(out)
	assert.NotEqual(t, "order-001", orderNo, "the last walk's order would not run again")
	return orderNo
}

func unchanged(s string) string { return s }

func TestTheSameWalkOnDynamoDB(t *testing.T) {
	t.Parallel()
	endpoint := dynamotest.Endpoint(t)
	table := dynamotest.TableName(t)
	f := newAWSFolder(t)
	for range 2 { // once with a table that is not there, and once with last time's
		out, errs, code := f.pay("--store", "dynamodb", "--endpoint", endpoint, "--table", table)
		require.Zero(t, code, errs)
		assert.Empty(t, errs)
		orderNo := sameWalk(t, out, unchanged)
		store, err := dynamostore.New(dynamotest.Client(t, endpoint), table)
		require.NoError(t, err)
		rec, err := store.Get(t.Context(), "demo#create_order#"+orderNo)
		require.NoError(t, err)
		assert.Equal(t, state.StatusCompleted, rec.Status)
		assert.Equal(t, 2, rec.Runs, "the process that died and the one that went on")
		assert.Empty(t, rec.Outbox.Messages, "sent")
	}
	f.leavesNothing()
}

// The crash of a process says how another one goes on, on the table too.
func TestACrashOnDynamoDBIsResumedAsItSays(t *testing.T) {
	t.Parallel()
	endpoint := dynamotest.Endpoint(t)
	f := newAWSFolder(t)
	out, errs, code := f.pay("--store", "dynamodb", "--endpoint", endpoint, "--table", dynamotest.TableName(t), "--db", "books", "--crash-after", checkout.Notify)
	require.Equal(t, 3, code, errs)
	_, said, found := strings.Cut(out, "go run ./examples/payment ")
	require.True(t, found, out)
	out, errs, code = f.pay(strings.Fields(said)...)
	require.Zero(t, code, errs)
	assert.Contains(t, out, "ledger: one charge\n")
	assert.Contains(t, out, "the queue: one message\n  order-created  demo#create_order#order-001/notify/0")
}

func TestTheSameWalkWithSQS(t *testing.T) {
	t.Parallel()
	brokertest.Endpoint(t, "SQS_ENDPOINT")
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := brokertest.NewQueue(t, fifo)
			f := newSQSFolder(t)
			out, errs, code := f.pay("--sqs", q.URL)
			require.Zero(t, code, errs)
			assert.Empty(t, errs)
			orderNo := sameWalk(t, out, func(want string) string { return inQueue.ReplaceAllString(want, "") })
			assert.Equal(t, []string{"demo#create_order#" + orderNo + "/notify/0"}, messageIDs(q.Receive(t)))
			f.leavesNothing()
		})
	}
}

// The step has emitted the message twice, once in each process, and recorded it once.
func TestACrashAfterNotifySendsOneMessageToSQS(t *testing.T) {
	t.Parallel()
	q := brokertest.NewQueue(t, false)
	f := newSQSFolder(t)
	_, errs, code := f.pay("--db", "runs.db", "--sqs", q.URL, "--crash-after", checkout.Notify)
	require.Equal(t, 3, code, errs)
	assert.Empty(t, q.Receive(t), "not recorded, so not sent")
	for range 2 {
		_, errs, code = f.pay("--db", "runs.db", "--sqs", q.URL)
		require.Zero(t, code, errs)
	}
	got := q.Receive(t)
	require.Equal(t, []string{"demo#create_order#order-001/notify/0"}, messageIDs(got))
	assert.Contains(t, *got[0].Body, `"order_no":"order-001"`)
}

func TestAQueueThatIsNotThere(t *testing.T) {
	t.Parallel()
	q := brokertest.NewQueue(t, false)
	f := newSQSFolder(t)
	_, errs, code := f.pay("--key", "order-1", "--sqs", strings.Replace(q.URL, "/queue-", "/missing-", 1))
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "it must exist")
	assert.Contains(t, errs, "NonExistentQueue")
	f.leavesNothing()
}

func messageIDs(msgs []types.Message) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, *m.MessageAttributes["message-id"].StringValue)
	}
	return ids
}

// Without an endpoint of its own in the environment, SQS is asked where the queue's URL says.
func TestAQueueIsAskedForWhereItsURLSays(t *testing.T) {
	t.Parallel()
	sink := brokertest.NewSink(t, 0)
	f := newAWSFolder(t)
	f.env = append(f.env, "AWS_ENDPOINT_URL_SQS=", "AWS_ENDPOINT_URL=")
	out, errs, code := f.pay("--key", "order-001", "--sqs", sink.URL+"/1/orders")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "sent: demo#create_order#order-001/notify/0\n")
}

package sagalambda

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// Kinesis handles the records of a Kinesis data stream: a record is a run. Records of one partition key run in order, and
// stop behind one that is to be delivered again; those of other partition keys run all the same, also behind it in the
// shard, so that they are not lost when the mapping gives the batch up.
//
// The lowest sequence number that failed is reported, from which Lambda delivers again: what was done behind it is a
// replay then. The event source mapping must have ReportBatchItemFailures (else see [WithWholeEvent]), a bounded
// MaximumRetryAttempts and a destination for failures, since a record that never succeeds stops its shard.
func Kinesis[In, Out any](runner saga.Runner[In, Out], request func(events.KinesisEventRecord) (saga.Key, In, error), opts ...Option) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event events.KinesisEvent) (events.KinesisEventResponse, error) {
		resp := events.KinesisEventResponse{BatchItemFailures: []events.KinesisBatchItemFailure{}}
		if h.c.broken != nil {
			return resp, h.c.broken
		}
		items := make([]item[In], len(event.Records))
		for i, r := range event.Records {
			items[i] = item[In]{id: r.Kinesis.SequenceNumber, group: "partition " + r.Kinesis.PartitionKey, event: r,
				make: func() (saga.Key, In, error) { return request(r) }}
		}
		h.all(ctx, items)
		lowest, failed := lowestFailed(items)
		if lowest != nil {
			resp.BatchItemFailures = append(resp.BatchItemFailures, events.KinesisBatchItemFailure{ItemIdentifier: lowest.id})
		}
		return resp, h.c.answer(failed, len(items), lowest != nil && lowest.id == "")
	}
}

// DynamoDBStream handles the records of a DynamoDB stream: a record is a run. Records of one item run in order. All that
// is said of [Kinesis] holds here too.
func DynamoDBStream[In, Out any](runner saga.Runner[In, Out], request func(events.DynamoDBEventRecord) (saga.Key, In, error), opts ...Option) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		resp := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
		if h.c.broken != nil {
			return resp, h.c.broken
		}
		items := make([]item[In], len(event.Records))
		for i, r := range event.Records {
			items[i] = item[In]{id: r.Change.SequenceNumber, group: changedItem(r), event: r,
				make: func() (saga.Key, In, error) { return request(r) }}
		}
		h.all(ctx, items)
		lowest, failed := lowestFailed(items)
		if lowest != nil {
			resp.BatchItemFailures = append(resp.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: lowest.id})
		}
		return resp, h.c.answer(failed, len(items), lowest != nil && lowest.id == "")
	}
}

// changedItem names the item whose order counts. Without readable keys all records of a table are one group.
func changedItem(r events.DynamoDBEventRecord) string {
	keys, err := json.Marshal(r.Change.Keys) // a map's names are sorted
	if err != nil {
		keys = nil
	}
	return "item " + r.EventSourceArn + " " + string(keys)
}

// lowestFailed is the failed record with the lowest sequence number. One without a number counts as the lowest.
func lowestFailed[In any](items []item[In]) (lowest *item[In], failed int) {
	for i := range items {
		if items[i].err == nil {
			continue
		}
		failed++
		if lowest == nil || less(items[i].id, lowest.id) {
			lowest = &items[i]
		}
	}
	return lowest, failed
}

// less compares decimal numbers without leading zeros, which are too long for an integer.
func less(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

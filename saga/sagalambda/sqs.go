package sagalambda

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// SQS handles the messages of a queue, standard or FIFO: a message is a run, whose key and input request makes of it
// ([Body] for JSON).
//
// Messages run concurrently ([WithConcurrency]), except those with one key, of which the later ones get the answer of the
// first. Which are to be delivered again is reported message by message; the event source mapping must have
// ReportBatchItemFailures (else see [WithWholeEvent]). On a FIFO queue the messages of a group run in order, and behind one
// that is to be delivered again all of its group are returned as well; other groups go on.
//
// The handler may be called concurrently, as far as request may. It fails the whole event only when its options can't work,
// or when a message has no ID.
func SQS[In, Out any](runner saga.Runner[In, Out], request func(events.SQSMessage) (saga.Key, In, error), opts ...Option) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		resp := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
		if h.c.broken != nil {
			return resp, h.c.broken
		}
		items := make([]item[In], len(event.Records))
		for i, m := range event.Records {
			items[i] = item[In]{id: m.MessageId, group: groupOf(m), event: m, make: func() (saga.Key, In, error) { return request(m) }}
		}
		h.all(ctx, items)
		nameless := false
		for i := range items {
			if items[i].err != nil {
				nameless = nameless || items[i].id == ""
				resp.BatchItemFailures = append(resp.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: items[i].id})
			}
		}
		return resp, h.c.answer(len(resp.BatchItemFailures), len(items), nameless)
	}
}

// groupOf is the group whose order a FIFO queue keeps. A standard queue may know groups too, for fairness, which has no
// order.
func groupOf(m events.SQSMessage) string {
	if !strings.HasSuffix(m.EventSourceARN, ".fifo") {
		return ""
	}
	return "group " + m.Attributes["MessageGroupId"]
}

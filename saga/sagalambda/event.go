package sagalambda

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// Event handles an event that is one run, such as one of EventBridge (events.EventBridgeEvent) or any JSON of an
// asynchronous invocation. An error has Lambda call again, twice unless it is configured otherwise, and then send the event
// to the function's dead-letter queue or failure destination.
func Event[T, In, Out any](runner saga.Runner[In, Out], request func(T) (saga.Key, In, error), opts ...Option) func(context.Context, T) error {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event T) error {
		if h.c.broken != nil {
			return h.c.broken
		}
		items := []item[In]{{event: event, make: func() (saga.Key, In, error) { return request(event) }}}
		h.all(ctx, items)
		return items[0].err
	}
}

// SNS handles the notifications of a topic that calls the function directly: a notification is a run. When one is to be
// delivered again the whole event is, and what was done of it is a replay then.
func SNS[In, Out any](runner saga.Runner[In, Out], request func(events.SNSEventRecord) (saga.Key, In, error), opts ...Option) func(context.Context, events.SNSEvent) error {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event events.SNSEvent) error {
		items := make([]item[In], len(event.Records))
		for i, r := range event.Records {
			items[i] = item[In]{id: r.SNS.MessageID, event: r, make: func() (saga.Key, In, error) { return request(r) }}
		}
		return h.whole(ctx, items)
	}
}

// S3 handles the notifications of a bucket that calls the function directly: a record is a run. When one is to be delivered
// again the whole event is, and what was done of it is a replay then. A good key is made of bucket, key and version ID or
// sequencer; the object key comes URL-encoded. Notifications may come twice and in any order.
func S3[In, Out any](runner saga.Runner[In, Out], request func(events.S3EventRecord) (saga.Key, In, error), opts ...Option) func(context.Context, events.S3Event) error {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event events.S3Event) error {
		items := make([]item[In], len(event.Records))
		for i, r := range event.Records {
			items[i] = item[In]{id: r.S3.Object.Sequencer, event: r, make: func() (saga.Key, In, error) { return request(r) }}
		}
		return h.whole(ctx, items)
	}
}

// whole runs records that can only be delivered again all together.
func (h *handler[In, Out]) whole(ctx context.Context, items []item[In]) error {
	if h.c.broken != nil {
		return h.c.broken
	}
	h.all(ctx, items)
	var failed []error
	for i := range items {
		failed = append(failed, items[i].err)
	}
	return errors.Join(failed...)
}

// Invoke handles a direct call whose caller waits for the result. Errors are the run's own, of every kind: the caller
// decides. Their type's name, which Lambda gives the caller as errorType and by which a state machine retries, is the kind's:
// InProgress, Interrupted, Failed, Reversed, Blocked, PayloadMismatch, LeaseLost, DefinitionChanged, InvalidKey,
// InvalidInput, TooLarge, StoreFailed, NotFound or NotAllowed; and MalformedError when no key and input could be made.
// No option about dispositions has any effect.
func Invoke[T, In, Out any](runner saga.Runner[In, Out], request func(T) (saga.Key, In, error), opts ...Option) func(context.Context, T) (Out, error) {
	h := newHandler(runner, request != nil, opts)
	return func(ctx context.Context, event T) (out Out, err error) {
		if h.c.broken != nil {
			return out, h.c.broken
		}
		it := item[In]{event: event, make: func() (saga.Key, In, error) { return request(event) }}
		if h.prepare(&it); !it.made {
			h.c.log.Error("record_malformed", h.c.fields(Record{Err: it.err})...)
			return out, it.err
		}
		if out, err = h.runner.guarded(ctx, it.key, it.in); err != nil {
			err = named(err)
		}
		return out, err
	}
}

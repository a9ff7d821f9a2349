package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// table is every kind of error that a run can end in, and whether its record is acknowledged.
var table = []struct {
	kind         error
	acknowledged bool
}{
	{nil, true},
	{saga.ErrFailed, true},
	{saga.ErrBlocked, true},
	{saga.ErrInProgress, false},
	{saga.ErrInterrupted, false},
	{saga.ErrReversed, false},
	{saga.ErrPayloadMismatch, false},
	{saga.ErrLeaseLost, false},
	{saga.ErrDefinitionChanged, false},
	{saga.ErrInvalidKey, false},
	{saga.ErrInvalidInput, false},
	{saga.ErrTooLarge, false},
	{saga.ErrStore, false},
	{saga.ErrNotFound, false},
	{saga.ErrNotAllowed, false},
}

// ways are the kinds of event, each with one record of the same order. They tell whether it was acknowledged.
var ways = map[string]func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool{
	"SQS standard": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		resp, err := sagalambda.SQS(r, sagalambda.Body[order](keyAt(t, "no")), opts...)(t.Context(), queue(message(t, "m1", "", "o-1")))
		return len(returned(t, resp, err)) == 0
	},
	"SQS FIFO": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		resp, err := sagalambda.SQS(r, sagalambda.Body[order](keyAt(t, "no")), opts...)(t.Context(), queue(message(t, "m1", "g", "o-1")))
		return len(returned(t, resp, err)) == 0
	},
	"Kinesis": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		resp, err := sagalambda.Kinesis(r, sagalambda.Data[order](keyAt(t, "no")), opts...)(t.Context(), events.KinesisEvent{Records: []events.KinesisEventRecord{shardRecord(t, "7", "p", "o-1")}})
		require.NoError(t, err)
		require.NotNil(t, resp.BatchItemFailures)
		return len(resp.BatchItemFailures) == 0
	},
	"DynamoDB stream": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		resp, err := sagalambda.DynamoDBStream(r, byImage, opts...)(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{itemRecord("7", "o-1")}})
		require.NoError(t, err)
		require.NotNil(t, resp.BatchItemFailures)
		return len(resp.BatchItemFailures) == 0
	},
	"EventBridge": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		err := sagalambda.Event(r, sagalambda.Detail[order](keyAt(t, "detail.no")), opts...)(t.Context(), events.EventBridgeEvent{ID: "e1", DetailType: "order", Detail: json.RawMessage(text(t, "o-1"))})
		return err == nil
	},
	"asynchronous": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		return sagalambda.Event(r, sagalambda.Payload[order](keyAt(t, "no")), opts...)(t.Context(), json.RawMessage(text(t, "o-1"))) == nil
	},
	"SNS": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		return sagalambda.SNS(r, sagalambda.Message[order](keyAt(t, "no")), opts...)(t.Context(), notifications(t, "o-1")) == nil
	},
	"S3": func(t *testing.T, r saga.Runner[order, string], opts ...sagalambda.Option) bool {
		return sagalambda.S3(r, byObject, opts...)(t.Context(), objects("o-1")) == nil
	},
}

func shardRecord(t *testing.T, sequence, partition, no string) events.KinesisEventRecord {
	t.Helper()
	return events.KinesisEventRecord{EventSource: "aws:kinesis", Kinesis: events.KinesisRecord{SequenceNumber: sequence, PartitionKey: partition, Data: []byte(text(t, no))}}
}

func itemRecord(sequence, no string) events.DynamoDBEventRecord {
	return events.DynamoDBEventRecord{EventName: "INSERT", Change: events.DynamoDBStreamRecord{
		SequenceNumber: sequence,
		Keys:           map[string]events.DynamoDBAttributeValue{"no": events.NewStringAttribute(no)},
		NewImage:       map[string]events.DynamoDBAttributeValue{"no": events.NewStringAttribute(no), "amount": events.NewNumberAttribute("1200")},
	}}
}

func byImage(r events.DynamoDBEventRecord) (saga.Key, order, error) {
	no := r.Change.NewImage["no"].String()
	amount, err := r.Change.NewImage["amount"].Integer()
	return saga.Key{ID: no}, order{No: no, Amount: amount}, err
}

func notifications(t *testing.T, numbers ...string) (e events.SNSEvent) {
	t.Helper()
	for i, no := range numbers {
		e.Records = append(e.Records, events.SNSEventRecord{SNS: events.SNSEntity{MessageID: fmt.Sprintf("n%d", i+1), Message: text(t, no)}})
	}
	return e
}

func objects(names ...string) (e events.S3Event) {
	for _, name := range names {
		e.Records = append(e.Records, events.S3EventRecord{S3: events.S3Entity{Object: events.S3Object{Key: name, Sequencer: "0A" + name}}})
	}
	return e
}

func byObject(r events.S3EventRecord) (saga.Key, order, error) {
	return saga.Key{ID: r.S3.Object.Key + "@" + r.S3.Object.Sequencer}, order{No: r.S3.Object.Key, Amount: 1200}, nil
}

func TestEveryKindOfErrorOverEveryKindOfEvent(t *testing.T) {
	for name, way := range ways {
		for _, row := range table {
			t.Run(fmt.Sprintf("%s %v", name, row.kind), func(t *testing.T) {
				if row.kind == nil {
					assert.True(t, way(t, always(nil)))
					return
				}
				// What an error wraps does not count: a step may have run another saga, which has failed.
				inner := &saga.Error{Kind: saga.ErrFailed, Err: errors.Join(saga.ErrBlocked, saga.ErrInterrupted)}
				full := &saga.Error{Kind: row.kind, Key: saga.Key{ID: "o-1"}, Step: "charge", Err: inner}
				for form, err := range map[string]error{"full": full, "wrapped": fmt.Errorf("around it: %w", full), "bare": row.kind} {
					assert.Equal(t, row.acknowledged, way(t, always(err)), form)
				}
			})
		}
	}
}

func TestErrorsThatAreNoRunsErrorsAreReturned(t *testing.T) {
	for name, err := range map[string]error{
		"anything":                   errors.New("no"),
		"a nil *saga.Error":          (*saga.Error)(nil),
		"a *saga.Error without kind": &saga.Error{Key: saga.Key{ID: "1"}},
		"the end of the context":     context.DeadlineExceeded,
	} {
		for event, way := range ways {
			assert.False(t, way(t, fake(func(context.Context, saga.Key, order) (string, error) { return "", err })), "%s over %s", name, event)
		}
	}
}

func TestAPanicOfTheRunnerIsReturned(t *testing.T) {
	boom := fake(func(context.Context, saga.Key, order) (string, error) { panic("s3cret") })
	for event, way := range ways {
		log := &logged{}
		assert.False(t, way(t, boom, sagalambda.WithLogger(log.logger())), event)
		assert.NotContains(t, log.text(), "s3cret", event)
	}
}

func TestDispositions(t *testing.T) {
	notThisTime := errors.New("the other queue is full")
	for name, tc := range map[string]struct {
		kind error
		opt  sagalambda.Option
		want bool
	}{
		"failed returned":       {saga.ErrFailed, sagalambda.WithFailed(sagalambda.Return), false},
		"blocked returned":      {saga.ErrBlocked, sagalambda.WithBlocked(sagalambda.Return), false},
		"failed, other option":  {saga.ErrFailed, sagalambda.WithBlocked(sagalambda.Return), true},
		"blocked, other option": {saga.ErrBlocked, sagalambda.WithFailed(sagalambda.Return), true},
		"could not be sent on":  {saga.ErrFailed, sagalambda.WithFailed(func(context.Context, sagalambda.Record) error { return notThisTime }), false},
		"panic":                 {saga.ErrFailed, sagalambda.WithFailed(func(context.Context, sagalambda.Record) error { panic("boom") }), false},
	} {
		for event, way := range ways {
			assert.Equal(t, tc.want, way(t, always(&saga.Error{Kind: tc.kind}), tc.opt), "%s over %s", name, event)
		}
	}
}

func TestAFailureCanBeSentOn(t *testing.T) {
	var sent []sagalambda.Record
	shop := &shop{charge: func(context.Context, *orderRun) error { return permanent(errDeclined) }}
	handle := sagalambda.SQS(shop.on(t, newStore()), byNo, sagalambda.WithFailed(func(_ context.Context, r sagalambda.Record) error {
		sent = append(sent, r)
		return nil
	}))
	m := message(t, "m1", "", "o-1")
	resp, err := handle(t.Context(), queue(m))
	assert.Empty(t, returned(t, resp, err))
	require.Len(t, sent, 1)
	assert.Equal(t, "m1", sent[0].ID)
	assert.Equal(t, m, sent[0].Event)
	assert.Equal(t, "o-1", sent[0].Key.ID)
	require.ErrorIs(t, sent[0].Err, saga.ErrFailed)
	var e *saga.Error
	require.ErrorAs(t, sent[0].Err, &e)
	assert.Equal(t, "card_declined", e.Code)
	assert.Equal(t, []string{"o-1"}, shop.released, "it was undone before")
}

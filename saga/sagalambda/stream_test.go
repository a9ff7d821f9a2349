package sagalambda_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

func TestKinesisReportsTheLowestFailedSequenceNumber(t *testing.T) {
	g := newGauge(0)
	g.fails["b-1"] = &saga.Error{Kind: saga.ErrInterrupted}
	g.fails["a-2"] = &saga.Error{Kind: saga.ErrStore}
	event := events.KinesisEvent{Records: []events.KinesisEventRecord{
		shardRecord(t, "9", "a", "a-1"), shardRecord(t, "10", "b", "b-1"), shardRecord(t, "11", "a", "a-2"),
		shardRecord(t, "12", "b", "b-2"), shardRecord(t, "13", "c", "c-1"), shardRecord(t, "100", "a", "a-3")}}
	handle := sagalambda.Kinesis(g, sagalambda.Data[order](keyAt(t, "no")))
	resp, err := handle(t.Context(), event)
	require.NoError(t, err)
	assert.Equal(t, []events.KinesisBatchItemFailure{{ItemIdentifier: "10"}}, resp.BatchItemFailures)
	slices.Sort(g.order)
	assert.Equal(t, []string{"a-1/1200", "a-2/1200", "b-1/1200", "c-1/1200"}, g.order, "what follows a failure in its partition key is held, and nothing else")
	delete(g.fails, "b-1")
	resp, err = handle(t.Context(), event)
	require.NoError(t, err)
	assert.Equal(t, []events.KinesisBatchItemFailure{{ItemIdentifier: "11"}}, resp.BatchItemFailures)
	delete(g.fails, "a-2")
	resp, err = handle(t.Context(), event)
	require.NoError(t, err)
	assert.Empty(t, resp.BatchItemFailures)
}

func TestDynamoDBStreamKeepsTheOrderOfAnItem(t *testing.T) {
	g := newGauge(0)
	g.fails["two"] = &saga.Error{Kind: saga.ErrInterrupted}
	request := func(r events.DynamoDBEventRecord) (saga.Key, order, error) {
		return saga.Key{ID: r.EventID}, order{No: r.EventID}, nil
	}
	change := func(sequence, item, event string) events.DynamoDBEventRecord {
		r := itemRecord(sequence, item)
		r.EventID = event
		return r
	}
	handle := sagalambda.DynamoDBStream(g, request)
	resp, err := handle(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{
		change("1", "x", "one"), change("2", "y", "two"), change("3", "y", "three"), change("4", "x", "four")}})
	require.NoError(t, err)
	assert.Equal(t, []events.DynamoDBBatchItemFailure{{ItemIdentifier: "2"}}, resp.BatchItemFailures)
	assert.NotContains(t, g.order, "three/0")
	assert.Less(t, slices.Index(g.order, "one/0"), slices.Index(g.order, "four/0"))
}

func TestAStreamsRecordWithoutNumberFailsTheEvent(t *testing.T) {
	fails := always(saga.ErrInterrupted)
	_, err := sagalambda.Kinesis(fails, sagalambda.Data[order](keyAt(t, "no")))(t.Context(),
		events.KinesisEvent{Records: []events.KinesisEventRecord{shardRecord(t, "5", "a", "a-1"), shardRecord(t, "", "b", "b-1")}})
	require.ErrorContains(t, err, "2 of 2 records")
	_, err = sagalambda.DynamoDBStream(fails, byImage)(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{itemRecord("", "o-1")}})
	require.ErrorContains(t, err, "1 of 1 records")
}

func TestBareRecordsOfADynamoDBStream(t *testing.T) {
	shop := &shop{}
	handle := sagalambda.DynamoDBStream(shop.on(t, newStore()), func(r events.DynamoDBEventRecord) (saga.Key, order, error) {
		return saga.Key{ID: r.EventID}, order{No: r.EventID}, nil
	})
	resp, err := handle(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{{EventID: "e1", Change: events.DynamoDBStreamRecord{SequenceNumber: "1"}}}})
	require.NoError(t, err)
	assert.Empty(t, resp.BatchItemFailures)
	assert.Equal(t, []string{"e1"}, shop.charged, "without the item's keys")
	_, err = handle(t.Context(), events.DynamoDBEvent{Records: make([]events.DynamoDBEventRecord, 1)})
	require.ErrorContains(t, err, "1 of 1 records", "without anything")
	resp, err = handle(t.Context(), events.DynamoDBEvent{})
	require.NoError(t, err)
	assert.NotNil(t, resp.BatchItemFailures)
}

func TestStreamsWithoutPartialResponses(t *testing.T) {
	fails := always(saga.ErrInterrupted)
	_, err := sagalambda.Kinesis(fails, sagalambda.Data[order](keyAt(t, "no")), sagalambda.WithWholeEvent())(t.Context(),
		events.KinesisEvent{Records: []events.KinesisEventRecord{shardRecord(t, "5", "a", "a-1")}})
	require.ErrorContains(t, err, "1 of 1 records")
	_, err = sagalambda.DynamoDBStream(fails, byImage, sagalambda.WithWholeEvent())(t.Context(), events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{itemRecord("5", "o-1")}})
	require.ErrorContains(t, err, "1 of 1 records")
}

func TestEventsOfSeveralRecordsAreTriedToTheEnd(t *testing.T) {
	g := newGauge(0)
	g.fails["o-1"] = &saga.Error{Kind: saga.ErrInterrupted, Err: errors.New("later")}
	err := sagalambda.SNS(g, sagalambda.Message[order](keyAt(t, "no")))(t.Context(), notifications(t, "o-1", "o-2"))
	require.ErrorIs(t, err, saga.ErrInterrupted)
	assert.Len(t, g.order, 2)
	err = sagalambda.S3(g, func(r events.S3EventRecord) (saga.Key, order, error) {
		return saga.Key{ID: r.S3.Object.Key}, order{No: r.S3.Object.Key}, nil
	})(t.Context(), objects("o-1", "o-2"))
	require.ErrorIs(t, err, saga.ErrInterrupted)
	assert.Len(t, g.order, 4)
}

func TestInvokeReturnsTheResultAndEveryError(t *testing.T) {
	shop := &shop{}
	call := sagalambda.Invoke(shop.on(t, newStore()), func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })
	for range 2 {
		out, err := call(t.Context(), order{No: "o-1"})
		require.NoError(t, err)
		assert.Equal(t, "ch-o-1", out)
	}
	assert.Len(t, shop.charged, 1)
	for _, row := range table[1:] {
		_, err := sagalambda.Invoke(always(&saga.Error{Kind: row.kind}), func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })(t.Context(), order{No: "o-1"})
		require.ErrorIs(t, err, row.kind)
	}
	_, err := sagalambda.Invoke(always(nil), func(order) (saga.Key, order, error) { panic("s3cret") })(t.Context(), order{})
	var malformed *sagalambda.MalformedError
	require.ErrorAs(t, err, &malformed)
	assert.NotContains(t, err.Error(), "s3cret")
	_, err = sagalambda.Invoke[order, order, string](nil, nil)(t.Context(), order{})
	require.ErrorContains(t, err, "the runner is nil")
}

func TestACallersErrorTypeIsTheKind(t *testing.T) {
	request := func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil }
	for kind, want := range map[error]string{saga.ErrInProgress: "InProgress", saga.ErrInterrupted: "Interrupted", saga.ErrFailed: "Failed",
		saga.ErrReversed: "Reversed", saga.ErrBlocked: "Blocked", saga.ErrPayloadMismatch: "PayloadMismatch", saga.ErrLeaseLost: "LeaseLost",
		saga.ErrDefinitionChanged: "DefinitionChanged", saga.ErrInvalidKey: "InvalidKey", saga.ErrInvalidInput: "InvalidInput",
		saga.ErrTooLarge: "TooLarge", saga.ErrStore: "StoreFailed", saga.ErrNotFound: "NotFound", saga.ErrNotAllowed: "NotAllowed"} {
		full := &saga.Error{Kind: kind, Key: saga.Key{ID: "o-1"}, Err: &saga.Error{Kind: saga.ErrFailed}}
		_, err := sagalambda.Invoke(always(full), request)(t.Context(), order{No: "o-1"})
		assert.Equal(t, want, reflect.TypeOf(err).Name())
		require.EqualError(t, err, full.Error())
		var e *saga.Error
		require.ErrorAs(t, err, &e)
		assert.Same(t, full, e)
	}
	other := errors.New("anything")
	_, err := sagalambda.Invoke(always(other), request)(t.Context(), order{No: "o-1"})
	assert.Equal(t, other, err)
}

func TestEventsWithOptionsThatCantWork(t *testing.T) {
	bad := sagalambda.WithConcurrency(0)
	ctx := context.Background()
	_, err := sagalambda.Kinesis(always(nil), sagalambda.Data[order](keyAt(t, "no")), bad)(ctx, events.KinesisEvent{})
	require.ErrorContains(t, err, "WithConcurrency")
	_, err = sagalambda.DynamoDBStream(always(nil), byImage, bad)(ctx, events.DynamoDBEvent{})
	require.ErrorContains(t, err, "WithConcurrency")
	require.ErrorContains(t, sagalambda.SNS(always(nil), sagalambda.Message[order](keyAt(t, "no")), bad)(ctx, events.SNSEvent{}), "WithConcurrency")
	require.ErrorContains(t, sagalambda.S3(always(nil), byObject, bad)(ctx, events.S3Event{}), "WithConcurrency")
	require.ErrorContains(t, sagalambda.Event(always(nil), byObject, bad)(ctx, events.S3EventRecord{}), "WithConcurrency")
	_, err = sagalambda.Runner(always(nil), bad).Run(ctx, saga.Key{ID: "1"}, order{})
	require.ErrorContains(t, err, "WithConcurrency")
	_, err = sagalambda.Scheduled(nil, nil, bad)(ctx, nil)
	require.ErrorContains(t, err, "WithConcurrency")
}

package dynamostore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// reporting is a server that reports the units of the index too, as DynamoDB does.
type reporting struct {
	dynamostore.Client
	consumed *types.ConsumedCapacity
	err      error
	asked    atomic.Value // of types.ReturnConsumedCapacity
}

func (r *reporting) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	r.asked.Store(in.ReturnConsumedCapacity)
	if r.err != nil {
		return nil, r.err
	}
	return &dynamodb.PutItemOutput{ConsumedCapacity: r.consumed}, nil
}

func TestMeterTakesWhatTheServerReports(t *testing.T) {
	server := &reporting{consumed: &types.ConsumedCapacity{
		CapacityUnits: aws.Float64(4), GlobalSecondaryIndexes: map[string]types.Capacity{"open": {CapacityUnits: aws.Float64(1)}},
	}}
	m, err := dynamostore.NewMeter(server)
	require.NoError(t, err)
	it := map[string]types.AttributeValue{"open_shard": &types.AttributeValueMemberN{Value: "1"}}
	in := &dynamodb.PutItemInput{Item: it}
	_, err = m.PutItem(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, types.ReturnConsumedCapacityIndexes, server.asked.Load())
	assert.Empty(t, in.ReturnConsumedCapacity, "the caller's request is left as it was")
	assert.Equal(t, dynamostore.Report{Requests: map[string]int{"PutItem": 1}, WriteUnits: 4, IndexUnits: 1}, m.Report())
	m.Reset()
	assert.Equal(t, dynamostore.Report{Requests: map[string]int{}}, m.Report())
	assert.Equal(t, dynamostore.Client(server), m.Unwrap())
}

func TestMeterComputesRefusedWrites(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused int
		units   float64
	}{
		"1,025 bytes": {&types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{
			"k": &types.AttributeValueMemberS{Value: strings.Repeat("v", 1024)}}}, 1, 2},
		"1,024 bytes": {&types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{
			"k": &types.AttributeValueMemberS{Value: strings.Repeat("v", 1023)}}}, 1, 1},
		"item not sent": {&types.ConditionalCheckFailedException{}, 1, 1},
		"another error": {errors.New("no answer"), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := dynamostore.NewMeter(&reporting{err: c.err})
			require.NoError(t, err)
			_, err = m.PutItem(t.Context(), &dynamodb.PutItemInput{})
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, dynamostore.Report{Requests: map[string]int{"PutItem": 1}, Refused: c.refused, WriteUnits: c.units, RefusedUnits: c.units}, m.Report())
		})
	}
}

// What the meter asks for beside what the store does is not handed on.
func TestMeterHandsOnWhatWasAskedFor(t *testing.T) {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := newTable(t, client)
	m, err := dynamostore.NewMeter(client)
	require.NoError(t, err)
	update := func(values types.ReturnValue) *dynamodb.UpdateItemOutput {
		out, err := m.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &table, Key: itemKey("k", "run"), UpdateExpression: aws.String("SET a = :a"), ReturnValues: values,
			ExpressionAttributeValues: map[string]types.AttributeValue{":a": &types.AttributeValueMemberS{Value: "1"}},
		})
		require.NoError(t, err)
		return out
	}
	update("")
	assert.Nil(t, update("").Attributes)
	assert.Nil(t, update(types.ReturnValueNone).Attributes)
	assert.Len(t, update(types.ReturnValueAllNew).Attributes, 3)
	del := func(values types.ReturnValue) *dynamodb.DeleteItemOutput {
		out, err := m.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table, Key: itemKey("k", "run"), ReturnValues: values})
		require.NoError(t, err)
		return out
	}
	assert.Nil(t, del("").Attributes)
	update("")
	assert.Len(t, del(types.ReturnValueAllOld).Attributes, 3)
	assert.InDelta(t, 7, m.Report().WriteUnits, 0)
}

// The units of the index by the meter's own sums, for every way that an entry comes and goes.
func TestMeterComputesTheIndex(t *testing.T) {
	s := newMetered(t)
	index := func(want float64, what string) {
		t.Helper()
		assert.InDelta(t, want, s.meter.Report().IndexUnits, 0, what)
		s.meter.Reset()
	}
	r := newCostlyRun(1, 1000, 60).Record
	(&costlyRun{Record: r}).create(t, s)
	index(1, "create")
	commit(t, s.Store, r, to(r, state.StatusInterrupted))
	commit(t, s.Store, r, to(r, state.StatusInProgress))
	require.NoError(t, s.RequestCancel(t.Context(), r.Key, state.CancelRequest{}))
	index(0, "in between")
	commit(t, s.Store, r, to(r, state.StatusCompleted))
	index(1, "end")
	commit(t, s.Store, r, to(r, state.StatusCompensating))
	index(1, "reverse")
	commit(t, s.Store, r, to(r, state.StatusCompensating))
	index(0, "undo")
	commit(t, s.Store, r, to(r, state.StatusReversed))
	index(1, "reversed")
	require.NoError(t, s.Delete(t.Context(), r.Key))
	index(0, "delete")

	r = ended(t, s.Store, time.Hour)
	index(1, "an end with messages")
	batches, err := s.Claim(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.Sent(t.Context(), batches[0], all(batches[0])))
	index(1, "sent")
	require.NoError(t, s.Delete(t.Context(), r.Key))
	r = newCostlyRun(1, 100, 60).Record
	(&costlyRun{Record: r}).create(t, s)
	require.NoError(t, s.Delete(t.Context(), r.Key))
	index(2, "create and delete")
	_, err = s.List(t.Context(), state.Query{})
	require.NoError(t, err)
	assert.Equal(t, dynamostore.DefaultShards, s.meter.Report().Requests["Query"])
}

func TestMeterCountsConcurrentCalls(t *testing.T) {
	m, err := dynamostore.NewMeter(&reporting{consumed: &types.ConsumedCapacity{CapacityUnits: aws.Float64(1)}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, err := m.PutItem(t.Context(), &dynamodb.PutItemInput{})
			assert.NoError(t, err)
			m.Report()
		}()
	}
	wg.Wait()
	assert.Equal(t, 50, m.Report().Requests["PutItem"])
	assert.InDelta(t, 50, m.Report().WriteUnits, 0)
}

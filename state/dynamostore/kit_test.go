package dynamostore_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// once makes the SDK not try again.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// fakeStore is a store on a clock that the test moves.
func fakeStore(t *testing.T, p *dynamotest.Proxy) (*dynamostore.Store, *clock.Fake) {
	t.Helper()
	clk := new(clock.Fake)
	clk.AutoAdvance()
	return newStore(t, p, dynamostore.WithClock(clk)), clk
}

// another is a store on the same table in another process: it has seen nothing yet.
func another(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, opts ...dynamostore.Option) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.New(dynamotest.Client(t, p.URL), dynamostore.TableOf(s), opts...)
	require.NoError(t, err)
	return store
}

// items are all items of a run, by their part.
func items(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, key string) map[string]map[string]types.AttributeValue {
	t.Helper()
	out, err := dynamotest.Client(t, p.URL).Query(t.Context(), &dynamodb.QueryInput{
		TableName: aws.String(dynamostore.TableOf(s)), KeyConditionExpression: aws.String("idempotency_key = :k"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":k": &types.AttributeValueMemberS{Value: key}},
		ConsistentRead:            aws.Bool(true),
	})
	require.NoError(t, err)
	found := map[string]map[string]types.AttributeValue{}
	for _, it := range out.Items {
		found[it["part"].(*types.AttributeValueMemberS).Value] = it
	}
	return found
}

// parts are the sort keys of a run's items.
func parts(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, key string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(items(t, p, s, key)))
}

// edit sets one attribute of a run's header by hand.
func edit(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, key, attribute string, v types.AttributeValue) {
	t.Helper()
	_, err := dynamotest.Client(t, p.URL).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String(dynamostore.TableOf(s)), Key: itemKey(key, "run"), UpdateExpression: aws.String("SET #a = :v"),
		ExpressionAttributeNames: map[string]string{"#a": attribute}, ExpressionAttributeValues: map[string]types.AttributeValue{":v": v},
	})
	require.NoError(t, err)
}

// remove deletes one item by hand.
func remove(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, key, part string) {
	t.Helper()
	_, err := dynamotest.Client(t, p.URL).DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: aws.String(dynamostore.TableOf(s)), Key: itemKey(key, part),
	})
	require.NoError(t, err)
}

func itemKey(key, part string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"idempotency_key": &types.AttributeValueMemberS{Value: key}, "part": &types.AttributeValueMemberS{Value: part}}
}

// entries is how many entries the open index has.
func entries(t *testing.T, s *dynamostore.Store) int {
	t.Helper()
	n, err := dynamostore.OpenEntries(t.Context(), s)
	require.NoError(t, err)
	return n
}

func message(id, body string, at time.Time) outbox.Message {
	return outbox.Message{ID: id, Topic: "t", Body: []byte(body), ContentType: "text/plain", Time: at}
}

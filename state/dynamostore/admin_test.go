package dynamostore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

func TestCreateTableMayBeCalledByManyAtOnce(t *testing.T) {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := dynamotest.TableName(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			assert.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
		}()
	}
	wg.Wait()
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table), "and again")
	require.NoError(t, dynamostore.Check(t.Context(), client, table))
}

// A table that someone has made without its expiry gets it; one that is another table is left alone.
func TestCreateTableAddsTheExpiry(t *testing.T) {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := dynamotest.TableName(t)
	in, err := dynamostore.TableInput(table)
	require.NoError(t, err)
	_, err = client.CreateTable(t.Context(), in)
	require.NoError(t, err)
	require.ErrorContains(t, dynamostore.Check(t.Context(), client, table), "nothing expires by expiration")
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	require.NoError(t, dynamostore.Check(t.Context(), client, table))
}

// A local server without the expiry calls will do for trying things out.
func TestCreateTableOnAServerWithoutExpiry(t *testing.T) {
	client := dynamotest.Client(t, dynamotest.Endpoint(t))
	table := dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	s, err := dynamostore.New(client, table)
	require.NoError(t, err)
	newCostlyRun(3, 1000, 60).complete(t, s)
}

func TestCreateTableFailures(t *testing.T) {
	p := dynamotest.Start(t, true)
	client := dynamotest.Client(t, p.URL, once)
	table := dynamotest.TableName(t)
	require.ErrorContains(t, dynamostore.CreateTable(t.Context(), nil, table), "client is nil")
	for _, operation := range []string{"CreateTable", "DescribeTable", "UpdateTimeToLive", "DescribeTimeToLive"} {
		p.Break(func(r dynamotest.Request) *dynamotest.Fault {
			if r.Operation == operation {
				return dynamotest.Refuse(400, "AccessDeniedException", "User is not authorized to perform that")
			}
			return nil
		})
		err := dynamostore.CreateTable(t.Context(), client, table)
		require.ErrorContains(t, err, "docs/infra has the policy", operation)
		require.ErrorContains(t, err, table)
	}
	p.Break(nil)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table), "what was not done is done later")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, dynamostore.CreateTable(ctx, client, table), context.Canceled)
}

// describing is a server that answers Describe calls with what the test says.
type describing struct {
	table *types.TableDescription
	ttl   *types.TimeToLiveDescription
}

func (d describing) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return &dynamodb.DescribeTableOutput{Table: d.table}, nil
}

func (d describing) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: d.ttl}, nil
}

// right is the table as it should be.
func right(t *testing.T) describing {
	t.Helper()
	in, err := dynamostore.TableInput("sagas")
	require.NoError(t, err)
	d := describing{
		&types.TableDescription{TableStatus: types.TableStatusActive, KeySchema: in.KeySchema, AttributeDefinitions: in.AttributeDefinitions},
		&types.TimeToLiveDescription{AttributeName: aws.String("expiration"), TimeToLiveStatus: types.TimeToLiveStatusEnabled},
	}
	for _, i := range in.GlobalSecondaryIndexes {
		d.table.GlobalSecondaryIndexes = append(d.table.GlobalSecondaryIndexes, types.GlobalSecondaryIndexDescription{
			IndexName: i.IndexName, KeySchema: i.KeySchema, Projection: i.Projection, IndexStatus: types.IndexStatusActive,
		})
	}
	return d
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	require.NoError(t, dynamostore.Check(t.Context(), right(t), "sagas"))
	for want, spoil := range map[string]func(d *describing){
		"it is CREATING": func(d *describing) { d.table.TableStatus = types.TableStatusCreating },
		"its key is part (S), idempotency_key (S), and should be idempotency_key (S), part (S)": func(d *describing) {
			d.table.KeySchema = []types.KeySchemaElement{d.table.KeySchema[1], d.table.KeySchema[0]}
		},
		"its key is idempotency_key (S), and should be": func(d *describing) { d.table.KeySchema = d.table.KeySchema[:1] },
		"its key is idempotency_key (B), part (S)": func(d *describing) {
			d.table.AttributeDefinitions[0].AttributeType = types.ScalarAttributeTypeB
		},
		"there is no index open; add a global secondary index": func(d *describing) { d.table.GlobalSecondaryIndexes[0].IndexName = aws.String("other") },
		"the key of index open is open_shard (N)": func(d *describing) {
			d.table.GlobalSecondaryIndexes[0].KeySchema = d.table.GlobalSecondaryIndexes[0].KeySchema[:1]
		},
		"index open is CREATING": func(d *describing) { d.table.GlobalSecondaryIndexes[0].IndexStatus = types.IndexStatusCreating },
		"aws dynamodb update-time-to-live --table-name sagas --time-to-live-specification Enabled=true,AttributeName=expiration": func(d *describing) {
			d.ttl.TimeToLiveStatus = types.TimeToLiveStatusDisabled
		},
		"nothing expires by expiration": func(d *describing) { d.ttl.AttributeName = aws.String("ttl") },
		"it is ; wait":                  func(d *describing) { d.table = nil },
	} {
		d := right(t)
		spoil(&d)
		require.ErrorContains(t, dynamostore.Check(t.Context(), d, "sagas"), want)
	}
	d := right(t)
	d.table.GlobalSecondaryIndexes = nil
	d.ttl = nil
	err := dynamostore.Check(t.Context(), d, "sagas")
	require.ErrorContains(t, err, "there is no index")
	require.ErrorContains(t, err, "nothing expires", "all that is missing is told at once")
	err = dynamostore.Check(t.Context(), d, "sagas", dynamostore.WithoutIndex())
	require.NotContains(t, err.Error(), "index")
	require.ErrorContains(t, dynamostore.Check(t.Context(), nil, "sagas"), "client is nil")
}

// bare is a client without the Describe calls.
type bare struct{ dynamostore.Client }

func TestStoreCheck(t *testing.T) {
	client := dynamotest.Client(t, dynamotest.Start(t, true).URL)
	table := newTable(t, client)
	meter, err := dynamostore.NewMeter(client)
	require.NoError(t, err)
	s, err := dynamostore.New(meter, table)
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()), "through the meter")
	s, err = dynamostore.New(meter, table, dynamostore.WithAttribute("expiration", "ttl"))
	require.NoError(t, err)
	require.ErrorContains(t, s.Check(t.Context()), "nothing expires by ttl")
	s, err = dynamostore.New(bare{client}, table)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), state.ErrUnsupported)
	s, err = dynamostore.New(client, "no-such-table")
	require.NoError(t, err)
	require.ErrorContains(t, s.Check(t.Context()), "make it with dynamostore.CreateTable")
}

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Describer is what [Check] needs of DynamoDB. *dynamodb.Client is one.
type Describer interface {
	DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(ctx context.Context, in *dynamodb.DescribeTimeToLiveInput, opts ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// Admin is what [CreateTable] needs of DynamoDB. *dynamodb.Client is one.
type Admin interface {
	Describer
	CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	UpdateTimeToLive(ctx context.Context, in *dynamodb.UpdateTimeToLiveInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

var _ Admin = (*dynamodb.Client)(nil)

// CreateTable makes the table of a store with the same options, waits until it is ACTIVE and sets its expiry (TTL). On a
// table that is there it only does what is missing of that, and returns the error of [Check] if the table is another
// one. It may be called by several processes at once. The table is billed on demand; what else production wants (backups,
// protection against deletion) is in the templates in docs/infra. Where a server that is not DynamoDB has no expiry, the
// table does without: nothing but this library's own comparisons then makes records expire.
func CreateTable(ctx context.Context, client Admin, table string, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	if client == nil {
		return errors.New("dynamostore: CreateTable: the client is nil")
	}
	_, err = client.CreateTable(ctx, c.tableInput(table))
	var exists *types.ResourceInUseException
	if err != nil && !errors.As(err, &exists) {
		return adminError("create", table, err)
	}
	if err := c.awaitActive(ctx, client, table); err != nil {
		return err
	}
	able, err := c.setTTL(ctx, client, table)
	if err != nil {
		return err
	}
	return c.check(ctx, client, table, able)
}

// tableInput is the table; the templates in docs/infra are held against it.
func (c *config) tableInput(table string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: &c.Key, AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: &c.Part, AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: keySchema(c.Key, c.Part),
	}
	if c.indexed {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: &c.OpenShard, AttributeType: types.ScalarAttributeTypeN},
			types.AttributeDefinition{AttributeName: &c.CreatedAt, AttributeType: types.ScalarAttributeTypeN})
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
			IndexName:  &c.index,
			KeySchema:  keySchema(c.OpenShard, c.CreatedAt),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}}
	}
	return in
}

func keySchema(partition, sort string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: &partition, KeyType: types.KeyTypeHash},
		{AttributeName: &sort, KeyType: types.KeyTypeRange},
	}
}

// longestCreation is how long CreateTable waits without a deadline of the caller's.
const longestCreation = 10 * time.Minute

func (c *config) awaitActive(ctx context.Context, client Describer, table string) error {
	ctx, cancel := context.WithTimeout(ctx, longestCreation)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
		var notYet *types.ResourceNotFoundException // of a table that has just been made
		if err != nil && !errors.As(err, &notYet) {
			return adminError("describe", table, err)
		}
		if err == nil && active(out.Table) {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("dynamostore: table %s is not ACTIVE yet: %w", table, context.Cause(ctx))
		}
	}
}

func active(t *types.TableDescription) bool {
	if t == nil || t.TableStatus != types.TableStatusActive {
		return false
	}
	for _, i := range t.GlobalSecondaryIndexes {
		if i.IndexStatus != types.IndexStatusActive {
			return false
		}
	}
	return true
}

// setTTL makes items expire. able is false when the server can't.
func (c *config) setTTL(ctx context.Context, client Admin, table string) (able bool, err error) {
	on, err := c.ttlSet(ctx, client, table)
	if err != nil || on {
		return !unknownOperation(err), ignoreUnknown(err)
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &c.Expiration, Enabled: aws.Bool(true)},
	})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "ValidationException" { // another process was quicker
		if on, again := c.ttlSet(ctx, client, table); again == nil && on {
			return true, nil
		}
	}
	return !unknownOperation(err), ignoreUnknown(adminError("set the expiry of", table, err))
}

// unknownOperation tells whether the server does not know the call at all, as local ones may not.
func unknownOperation(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "UnknownOperationException"
}

func ignoreUnknown(err error) error {
	if unknownOperation(err) {
		return nil
	}
	return err
}

// ttlSet tells whether items expire by the right attribute, or soon will.
func (c *config) ttlSet(ctx context.Context, client Describer, table string) (bool, error) {
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return false, adminError("describe the expiry of", table, err)
	}
	d := out.TimeToLiveDescription
	if d == nil || d.TimeToLiveStatus != types.TimeToLiveStatusEnabled && d.TimeToLiveStatus != types.TimeToLiveStatusEnabling {
		return false, nil
	}
	return aws.ToString(d.AttributeName) == c.Expiration, nil
}

func adminError(verb, table string, err error) error {
	if err == nil {
		return nil
	}
	if help := advice(err); help != "" {
		return fmt.Errorf("dynamostore: %s table %s: %s: %w", verb, table, help, err)
	}
	return fmt.Errorf("dynamostore: %s table %s: %w", verb, table, err)
}

package dynamostore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// headerKey is the primary key of a run's header.
func (s *Store) headerKey(key string) item { return s.itemKey(key, headerPart) }

func (s *Store) itemKey(key, part string) item {
	return item{s.names.Key: str(key), s.names.Part: str(part)}
}

// update sends a conditional update of a header. refusal is true when the condition failed, with the item as it was, or
// nil when there was none.
func (s *Store) update(ctx context.Context, verb, key string, e *expression, values types.ReturnValue) (after item, refusal bool, old item, err error) {
	in := &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 s.headerKey(key),
		UpdateExpression:                    aws.String(e.update()),
		ConditionExpression:                 aws.String(e.condition()),
		ExpressionAttributeNames:            e.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnValues:                        values,
	}
	if len(e.values) > 0 {
		in.ExpressionAttributeValues = e.values
	}
	var out *dynamodb.UpdateItemOutput
	err = s.besideTransactions(ctx, func() (err error) {
		out, err = s.client.UpdateItem(ctx, in)
		return err
	})
	if err == nil {
		return out.Attributes, false, nil, nil
	}
	if old, refusal = refused(err); refusal {
		old, err = s.oldItem(ctx, verb, key, old)
		return nil, true, old, err
	}
	return nil, false, nil, s.wrap(verb, key, err)
}

// oldItem is the header that made a condition fail: the one that came with the failure, or, from a server that does not
// send it, what a consistent read finds.
func (s *Store) oldItem(ctx context.Context, verb, key string, sent item) (item, error) {
	if sent != nil {
		return sent, nil
	}
	return s.readHeader(ctx, verb, key)
}

// readHeader is the header item, nil when there is none.
func (s *Store) readHeader(ctx context.Context, verb, key string) (item, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: s.headerKey(key), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, s.wrap(verb, key, err)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// besideTransactions sends a write again that was refused because a transaction is writing to the same item. The SDK does
// not do that by itself; nothing was written, so it is safe.
func (s *Store) besideTransactions(ctx context.Context, send func() error) error {
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		err := send()
		var conflict *types.TransactionConflictException
		if err == nil || !errors.As(err, &conflict) || pause > 100*time.Millisecond {
			return err
		}
		if wait := s.clock.Sleep(ctx, pause/2+rand.N(pause)); wait != nil {
			return err
		}
	}
}

package dynamostore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Create stores rec if its key is not taken; see [state.Store]. A record with a payload in a sibling is looked for first,
// with one consistent read, so that a duplicate does not pay for writing it.
func (s *Store) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	it, siblings, err := s.encodeRecord(rec)
	if err != nil {
		return nil, err
	}
	if size := itemSize(it); size > maxItem {
		return nil, fmt.Errorf("dynamostore: create run %s: the header would have %d bytes, at most %d are possible: %w", rec.Key, size, maxItem, state.ErrTooLarge)
	}
	if len(siblings) > 0 {
		if existing, err := s.createSiblings(ctx, rec, siblings); existing != nil || err != nil {
			return existing, err
		}
	}
	for range 4 {
		refusal, old, err := s.put(ctx, rec, it)
		if err != nil {
			return nil, err
		}
		if !refusal {
			s.memo.put(rec.Key, hintOf(rec))
			return nil, nil
		}
		// nil: it was deleted, or has expired, between the write and the read.
		if h, err := s.load(ctx, "create", rec.Key, old); h != nil || err != nil {
			return recordOf(h), err
		}
	}
	return nil, fmt.Errorf("dynamostore: create run %s: the key is taken and set free all the time", rec.Key)
}

func recordOf(h *header) *state.Record {
	if h == nil {
		return nil
	}
	return h.rec
}

func (s *Store) createSiblings(ctx context.Context, rec *state.Record, siblings []sibling) (existing *state.Record, err error) {
	it, err := s.readHeader(ctx, "create", rec.Key)
	if err != nil {
		return nil, err
	}
	if it != nil && !s.freeFor(it, rec) {
		if h, err := s.load(ctx, "create", rec.Key, it); h != nil || err != nil {
			return recordOf(h), err
		}
	}
	return nil, s.putSiblings(ctx, "create", rec.Key, siblings, rec.Retention)
}

// createTime is the second by which Create tells whether a record has expired: its own clock's, or the new record's,
// whichever is later.
func (s *Store) createTime(rec *state.Record) int64 {
	return max(s.clock.Now().Unix(), rec.CreatedAt.Unix())
}

// freeFor tells whether the stored record has expired as far as the new one is concerned.
func (s *Store) freeFor(stored item, rec *state.Record) bool {
	r := &reader{it: stored}
	expires, ok := r.num(s.names.Expiration)
	return ok && expires <= s.createTime(rec)
}

func (s *Store) put(ctx context.Context, rec *state.Record, it item) (refusal bool, old item, err error) {
	in := &dynamodb.PutItemInput{
		TableName:                           &s.table,
		Item:                                it,
		ConditionExpression:                 aws.String("attribute_not_exists(#k) OR #e <= :now"),
		ExpressionAttributeNames:            map[string]string{"#k": s.names.Key, "#e": s.names.Expiration},
		ExpressionAttributeValues:           item{":now": num(s.createTime(rec))},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	err = s.besideTransactions(ctx, func() error {
		_, err := s.client.PutItem(ctx, in)
		return err
	})
	if err == nil {
		return false, nil, nil
	}
	old, refusal = refused(err)
	if !refusal {
		return false, nil, s.wrap("create", rec.Key, err)
	}
	old, err = s.oldItem(ctx, "create", rec.Key, old)
	return true, old, err
}

package dynamostore

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// fresh is the age under which Delete leaves a sibling alone that nobody refers to: its header may be on its way.
const fresh = 15 * time.Minute

// Delete removes the record and its siblings; see [state.Store]. The header goes first, so that what is left after a
// crash belongs to nothing; call it again to remove that too. Siblings of writes that never came about are removed when
// they are older than 15 minutes, otherwise they expire.
func (s *Store) Delete(ctx context.Context, key string) error {
	it, err := s.readHeader(ctx, "delete", key)
	if err != nil {
		return err
	}
	var own []string
	if it != nil {
		if h, err := s.decodeHeader(it); err == nil { // what can't be read can be deleted all the same
			for _, r := range h.refs {
				own = append(own, r.part)
			}
		}
	}
	siblings, err := s.siblingsOf(ctx, key)
	if err != nil {
		return err
	}
	s.memo.drop(key)
	if err := s.deleteItems(ctx, "delete", key, []string{headerPart}); err != nil {
		return err
	}
	var parts []string
	for part, written := range siblings {
		if slices.Contains(own, part) || s.clock.Now().Sub(written) > fresh {
			parts = append(parts, part)
		}
	}
	return s.deleteItems(ctx, "delete", key, parts)
}

// siblingsOf are the run's siblings, those that nobody refers to included, with the time when they were written.
func (s *Store) siblingsOf(ctx context.Context, key string) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	in := &dynamodb.QueryInput{
		TableName:                 &s.table,
		KeyConditionExpression:    aws.String("#k=:k AND begins_with(#p,:p)"),
		ProjectionExpression:      aws.String("#p,#c"),
		ExpressionAttributeNames:  map[string]string{"#k": s.names.Key, "#p": s.names.Part, "#c": s.names.CreatedAt},
		ExpressionAttributeValues: item{":k": str(key), ":p": str(siblingPrefix)},
		ConsistentRead:            aws.Bool(true),
	}
	for {
		out, err := s.client.Query(ctx, in)
		if err != nil {
			return nil, s.wrap("delete", key, err)
		}
		for _, it := range out.Items {
			r := &reader{it: it}
			found[r.str(s.names.Part)] = r.milli(s.names.CreatedAt)
		}
		if len(out.LastEvaluatedKey) == 0 {
			return found, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

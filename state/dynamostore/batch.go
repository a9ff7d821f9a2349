package dynamostore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	// batchSize is DynamoDB's limit on the keys of a BatchGetItem.
	batchSize = 100
	// parallel is how many siblings of one write are sent at a time.
	parallel = 8
	// siblingYear is how long siblings outlive the retention, counted from their writing.
	siblingYear = 365 * 24 * time.Hour
)

// batchGet reads items consistently, in no order. Those that are not there are left out.
func (s *Store) batchGet(ctx context.Context, verb, key string, keys []item) ([]item, error) {
	var found []item
	pause := 20 * time.Millisecond
	for len(keys) > 0 {
		n := min(len(keys), batchSize)
		out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: keys[:n], ConsistentRead: aws.Bool(true)}},
		})
		if err != nil {
			return nil, s.wrap(verb, key, err)
		}
		found = append(found, out.Responses[s.table]...)
		left := out.UnprocessedKeys[s.table].Keys
		keys = append(keys[n:len(keys):len(keys)], left...)
		if len(left) < n {
			pause = 20 * time.Millisecond
			continue
		}
		// Nothing came: throttled.
		if pause > 2*time.Second {
			return nil, fmt.Errorf("dynamostore: %s run %s in table %s: %s", verb, key, s.table, throttled)
		}
		if err := s.clock.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return nil, s.wrap(verb, key, err)
		}
		pause *= 2
	}
	return found, nil
}

// putSiblings writes the siblings of one header write, before it. They are not conditional: nobody else writes items of
// this write ID.
func (s *Store) putSiblings(ctx context.Context, verb, key string, siblings []sibling, retention time.Duration) error {
	if len(siblings) == 0 {
		return nil
	}
	now := s.clock.Now()
	return s.inParallel(len(siblings), func(i int) error {
		it := s.itemKey(key, siblings[i].part)
		it[s.names.Data] = dataValue(siblings[i].data)
		it[s.names.CreatedAt] = num(now.UnixMilli())
		if retention > 0 {
			it[s.names.Expiration] = num(state.CeilSecond(now.Add(retention + siblingYear)).Unix())
		}
		err := s.besideTransactions(ctx, func() error {
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: it})
			return err
		})
		return s.wrap(verb, key, err)
	})
}

// deleteItems removes items of a run's partition, and does not mind those that are not there.
func (s *Store) deleteItems(ctx context.Context, verb, key string, parts []string) error {
	return s.inParallel(len(parts), func(i int) error {
		err := s.besideTransactions(ctx, func() error {
			_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &s.table, Key: s.itemKey(key, parts[i])})
			return err
		})
		return s.wrap(verb, key, err)
	})
}

// inParallel calls do for 0 to n-1, some at a time, waits for all, and returns one of the errors.
func (s *Store) inParallel(n int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	var wg sync.WaitGroup
	errs := make([]error, n)
	slots := make(chan struct{}, parallel)
	for i := range n {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = do(i)
			<-slots
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

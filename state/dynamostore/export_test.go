package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// TableOf is the table of a store.
func TableOf(s *Store) string { return s.table }

// HeaderSize is the size of a run's header item in bytes.
func HeaderSize(ctx context.Context, s *Store, key string) (int, error) {
	it, err := s.readHeader(ctx, "measure", key)
	return itemSize(it), err
}

// OpenEntries is how many entries the open index has.
func OpenEntries(ctx context.Context, s *Store) (n int, err error) {
	at, end := position{}, false
	for !end {
		var found []position
		if found, at, end, err = s.entries(ctx, "count", at, batchSize); err != nil {
			return 0, err
		}
		n += len(found)
	}
	return n, nil
}

// ShardOf is the partition of the index that a run goes into.
func ShardOf(s *Store, key string) int64 { return s.shard(key) }

// StandardNames are the attributes' names.
func StandardNames() (all []string) {
	n := standardNames()
	for _, name := range n.all() {
		all = append(all, *name)
	}
	return all
}

// TableInput is the table that CreateTable makes.
func TableInput(table string, opts ...Option) (*dynamodb.CreateTableInput, error) {
	c, err := newConfig(opts)
	return c.tableInput(table), err
}

package dynamostore

import "context"

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

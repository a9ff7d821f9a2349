package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// position is a place in the open index: behind an entry of a shard, or at the shard's start.
type position struct {
	shard   int
	created string // a number, as the index has it
	key     string // empty: at the start
}

// String is the position as a cursor.
func (p position) String() string {
	return strconv.Itoa(p.shard) + "|" + p.created + "|" + p.key
}

func parsePosition(cursor string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	parts := strings.SplitN(cursor, "|", 3)
	if len(parts) == 3 {
		shard, err := strconv.Atoi(parts[0])
		_, errCreated := strconv.ParseInt(parts[1], 10, 64)
		if err == nil && shard >= 0 && (errCreated == nil) == (parts[2] != "") {
			return position{shard, parts[1], parts[2]}, nil
		}
	}
	return position{}, fmt.Errorf("dynamostore: %q is not a cursor of this store", state.Cut(cursor))
}

// shards is how many partitions of the index are listed.
func (c *config) listed() int { return max(c.shards, c.oldShards) }

// visit is what a walk calls for each record, in the order of the index. taken false: the walk ends in front of this one.
type visit func(h *header, it item) (taken bool, err error)

// walk reads about limit entries of the open index from a position on, within one shard, and the records that they stand
// for, consistently. Entries whose record is gone, and records that a newer version of the library has written, are
// passed over, and so are those that can't be read, where there is someone to tell. Payloads in siblings are not read. It returns the position behind the last entry that was taken; end
// tells that this was the index's last.
func (s *Store) walk(ctx context.Context, verb string, from position, limit int, do visit) (next position, end bool, err error) {
	keys, next, end, err := s.entries(ctx, verb, from, limit)
	if err != nil || len(keys) == 0 {
		return next, end, err
	}
	items, err := s.headers(ctx, verb, keys)
	if err != nil {
		return from, false, err
	}
	at := from
	for _, k := range keys {
		h, err := s.readable(k.key, items[k.key])
		if err != nil {
			return from, false, err
		}
		if h != nil {
			if taken, err := do(h, items[k.key]); err != nil || !taken {
				return at, false, err
			}
		}
		at = k
	}
	return next, end, nil
}

// readable is the header; nil when it is to be passed over.
func (s *Store) readable(key string, it item) (*header, error) {
	if it == nil {
		return nil, nil
	}
	h, err := s.decodeHeader(it)
	switch {
	case err == nil:
		s.memo.put(key, hintOf(h.rec))
		return h, nil
	case errors.Is(err, state.ErrNewerRecord):
		return nil, nil
	case s.unreadable != nil:
		s.unreadable(key, err)
		return nil, nil
	}
	return nil, err
}

// entries are the positions of the entries, and the position behind them.
func (s *Store) entries(ctx context.Context, verb string, from position, limit int) (entries []position, next position, end bool, err error) {
	n := &s.names
	in := &dynamodb.QueryInput{
		TableName: &s.table, IndexName: &s.index, Limit: aws.Int32(int32(min(max(limit, 1), batchSize))),
		KeyConditionExpression:    aws.String("#os=:os"),
		ExpressionAttributeNames:  map[string]string{"#os": n.OpenShard},
		ExpressionAttributeValues: item{":os": num(int64(from.shard))},
	}
	if from.key != "" {
		in.ExclusiveStartKey = s.headerKey(from.key)
		in.ExclusiveStartKey[n.OpenShard] = num(int64(from.shard))
		in.ExclusiveStartKey[n.CreatedAt] = numOf(from.created)
	}
	out, err := s.client.Query(ctx, in)
	if err != nil {
		return nil, from, false, s.wrap(verb, "in index "+s.index, err)
	}
	for _, it := range out.Items {
		p, err := s.positionOf(it, from.shard)
		if err != nil {
			return nil, from, false, err
		}
		entries = append(entries, p)
	}
	if len(out.LastEvaluatedKey) > 0 {
		next, err = s.positionOf(out.LastEvaluatedKey, from.shard)
		return entries, next, false, err
	}
	if from.shard+1 < s.listed() {
		return entries, position{shard: from.shard + 1}, false, nil
	}
	return entries, position{}, true, nil
}

func (s *Store) positionOf(it item, shard int) (position, error) {
	r := &reader{it: it}
	created, _ := r.num(s.names.CreatedAt)
	return position{shard, strconv.FormatInt(created, 10), r.str(s.names.Key)}, r.err
}

// headers are the headers of the entries, by their keys.
func (s *Store) headers(ctx context.Context, verb string, entries []position) (map[string]item, error) {
	seen := make(map[string]item, len(entries))
	keys := make([]item, 0, len(entries))
	for _, p := range entries {
		if _, twice := seen[p.key]; !twice { // the index may show a run in two places for a moment
			seen[p.key] = nil
			keys = append(keys, s.headerKey(p.key))
		}
	}
	found, err := s.batchGet(ctx, verb, "in index "+s.index, keys)
	if err != nil {
		return nil, err
	}
	for _, it := range found {
		seen[(&reader{it: it}).str(s.names.Key)] = it
	}
	return seen, nil
}

// sweep is where the last Claim of this store has stopped. A next one goes on there, so that runs without messages do
// not keep those behind them from being found.
type sweep struct {
	mu sync.Mutex
	at position
}

func (w *sweep) get() position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *sweep) set(p position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = p
}

package memory

import (
	"context"
	"fmt"
	"sort"
	"strconv"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// List returns a page of records, those created first before the others; see [state.Store].
func (s *Store) List(ctx context.Context, q state.Query) (state.Page, error) {
	if err := ctx.Err(); err != nil {
		return state.Page{}, err
	}
	after, err := position(q.Cursor)
	if err != nil {
		return state.Page{}, err
	}
	if q.Limit <= 0 {
		q.Limit = state.DefaultPage
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var page state.Page
	var last uint64
	for _, e := range s.behind(after) {
		if e.rec == nil || !q.Matches(e.rec) || e.rec.Expired(now) {
			continue
		}
		if len(page.Records) == q.Limit {
			page.Next = cursor(last)
			break
		}
		page.Records = append(page.Records, e.rec.Clone())
		last = e.seq
	}
	return page, nil
}

// behind are the entries created after the one with this number.
func (s *Store) behind(seq uint64) []*entry {
	return s.order[sort.Search(len(s.order), func(i int) bool { return s.order[i].seq > seq }):]
}

func cursor(seq uint64) string { return strconv.FormatUint(seq, 10) }

func position(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory: %q is not a cursor of this store", state.Cut(cursor))
	}
	return seq, nil
}

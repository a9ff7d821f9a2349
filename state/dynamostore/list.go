package dynamostore

import (
	"context"
	"errors"
	"slices"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// examined is how many index entries one page of a listing looks at, at least, before it is returned short.
const examined = 1000

// leastLook is how many entries a listing looks at together, however few records are left to find.
const leastLook = 25

// List returns a page of the records that have not ended, out of the open index, which lags a moment behind; see
// [state.Store]. Ended runs are ErrUnsupported, and so is everything on a store made WithoutIndex. Records that a newer
// version of the library has written are passed over. A record with a lost payload is listed without it.
func (s *Store) List(ctx context.Context, q state.Query) (state.Page, error) {
	if !s.indexed {
		return state.Page{}, s.unsupported("List", " without the index")
	}
	if slices.ContainsFunc(q.Statuses, state.Status.Ended) {
		return state.Page{}, s.unsupported("List", " of ended runs")
	}
	at, err := parsePosition(q.Cursor)
	if err != nil {
		return state.Page{}, err
	}
	if q.Limit <= 0 {
		q.Limit = state.DefaultPage
	}
	var found []*header
	for seen, end := 0, false; !end && len(found) < q.Limit && seen < examined; {
		at, end, err = s.walk(ctx, "list", at, max(q.Limit-len(found), leastLook), func(h *header, it item) (bool, error) {
			if len(found) == q.Limit {
				return false, nil
			}
			seen++
			if h.rec.Status.Ended() {
				s.settleQuietly(ctx, h, it)
			} else if q.Matches(h.rec) {
				found = append(found, h)
			}
			return true, nil
		})
		if err != nil {
			return state.Page{}, err
		}
		if end {
			return s.page(ctx, found, "")
		}
	}
	return s.page(ctx, found, at.String())
}

func (s *Store) page(ctx context.Context, found []*header, next string) (state.Page, error) {
	page := state.Page{Next: next}
	for _, h := range found {
		if len(h.refs) > 0 {
			full, err := s.reload(ctx, "list", h)
			if err != nil {
				return state.Page{}, err
			}
			if h = full; h == nil { // it has ended and expired, or was deleted, meanwhile
				continue
			}
		}
		page.Records = append(page.Records, h.rec)
	}
	return page, nil
}

// reload reads a record's payloads, and the record anew when it has changed. Lost ones stay empty.
func (s *Store) reload(ctx context.Context, verb string, h *header) (*header, error) {
	missing, err := s.fill(ctx, verb, h.rec.Key, h.refs)
	if err != nil || len(missing) == 0 {
		return h, err
	}
	it, err := s.readHeader(ctx, verb, h.rec.Key)
	if err != nil {
		return nil, err
	}
	full, err := s.load(ctx, verb, h.rec.Key, it)
	if full != nil && errors.Is(err, state.ErrCorrupt) {
		err = nil
	}
	return full, err
}

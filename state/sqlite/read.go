package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Get returns the record; see [state.Store].
func (s *Store) Get(ctx context.Context, key string) (*state.Record, error) {
	var r *row
	err := s.readers.with(ctx, func(c conn) (err error) {
		r, err = find(c, key)
		return err
	})
	if err == nil && r != nil && r.hasPayloads {
		err = s.readers.snapshot(ctx, func(c conn) (err error) {
			if r, err = find(c, key); err != nil || r == nil {
				return err
			}
			return r.loadPayloads(c)
		})
	}
	if err != nil {
		return nil, s.readFailed("Get", key, err)
	}
	if r == nil || r.rec.Expired(s.clock.Now()) {
		return nil, s.failed("Get", key, state.ErrNotFound)
	}
	if err := r.decode(); err != nil {
		return nil, s.failed("Get", key, err)
	}
	return r.rec, nil
}

// readFailed says where an error came from, and what to do when it is SQLite's.
func (s *Store) readFailed(op, key string, err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return s.failed(op, key, err)
	}
	return s.failed(op, key, explain(s.path, "a read", err))
}

// List returns a page of records, those created first before the others; see [state.Store]. Records that a newer version
// of the library has written are passed over.
func (s *Store) List(ctx context.Context, q state.Query) (state.Page, error) {
	after, err := position(q.Cursor)
	if err != nil {
		return state.Page{}, s.failed("List", "", err)
	}
	if q.Limit <= 0 {
		q.Limit = state.DefaultPage
	}
	var found []*row
	err = s.readers.snapshot(ctx, func(c conn) error {
		defer c.SetInterrupt(c.SetInterrupt(ctx.Done()))
		found, err = list(c, q, after, s.clock.Now())
		return err
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return state.Page{}, s.readFailed("List", "", err)
	}
	var page state.Page
	if len(found) > q.Limit {
		found = found[:q.Limit]
		page.Next = strconv.FormatInt(found[q.Limit-1].id, 10)
	}
	if found, err = s.sift("List", found); err != nil {
		return state.Page{}, err
	}
	for _, r := range found {
		page.Records = append(page.Records, r.rec)
	}
	return page, nil
}

func position(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(cursor, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a cursor of this store", state.Cut(cursor))
	}
	return int64(id), nil
}

// list reads a page and one more, so that the caller knows whether that was the last.
func list(c conn, q state.Query, after int64, now time.Time) (page []*row, err error) {
	s, err := c.Prepare(listSQL(q.Statuses))
	if err != nil {
		return nil, err
	}
	b := binder{s: s}
	b.int(after)
	b.orNull(q.Operation)
	if lapsed := q.LapsedBefore; lapsed.IsZero() {
		b.null()
	} else { // stored leases are whole milliseconds
		b.time(lapsed.Add(time.Millisecond - 1))
	}
	b.int(now.Unix())
	b.int(int64(q.Limit) + 1)
	for {
		more, err := s.Step()
		if err != nil || !more {
			if err := done(s, err); err != nil {
				return nil, err
			}
			break
		}
		page = append(page, scan(s))
	}
	return page, loadAll(c, page)
}

// listWhere lets a head that is no JSON pass, so that it is told as what it is.
const listWhere = ` WHERE r.id > ?1 AND (?2 IS NULL OR a.operation = ?2)
  AND (?3 IS NULL OR NOT json_valid(r.head) OR coalesce(r.head->>'$[3]', ?3 - 1) < ?3) AND (r.expiration IS NULL OR r.expiration > ?4)`

// listSQL goes by the index of runs that are not completed, a status at a time and merged, or, when completed ones are
// asked for too, through all runs.
func listSQL(statuses []state.Status) string {
	wanted := statuses
	if len(wanted) == 0 {
		wanted = state.Statuses()
	}
	var one []string
	for _, status := range state.Statuses() {
		if !slices.Contains(wanted, status) {
			continue
		}
		where := listWhere + ` AND r.status = '` + string(status) + `'`
		if status != state.StatusCompleted {
			where += ` AND r.status <> 'COMPLETED'`
		}
		one = append(one, `SELECT `+columns+rows+where)
	}
	switch {
	case len(one) == len(state.Statuses()):
		one = []string{`SELECT ` + columns + rows + listWhere}
	case len(one) == 0: // none that exists
		one = []string{`SELECT ` + columns + rows + listWhere + ` AND 0`}
	}
	return strings.Join(one, "\nUNION ALL ") + ` ORDER BY 1 LIMIT ?5`
}

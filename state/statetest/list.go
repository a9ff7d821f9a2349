package statetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// maxPages is how many pages a listing of the suite's few records may take before it counts as endless.
const maxPages = 1000

// list walks through all pages and returns the records by key.
func (s *subject) list(q state.Query) map[string]*state.Record {
	s.Helper()
	found := map[string]*state.Record{}
	for range maxPages {
		page, err := s.store.List(s.Context(), q)
		require.NoError(s, err, "List %+v", q)
		if q.Limit > 0 {
			require.LessOrEqual(s, len(page.Records), q.Limit, "a page is no longer than its limit")
		}
		for _, rec := range page.Records {
			found[rec.Key] = rec
		}
		if page.Next == "" {
			return found
		}
		q.Cursor = page.Next
	}
	require.Fail(s, "List never ends")
	return nil
}

func testList(s *subject) {
	at := now()
	require.Empty(s, s.list(state.Query{}), "an empty store")
	var all []*state.Record
	for i, status := range state.Statuses() {
		for j, lease := range []time.Time{{}, at.Add(-time.Minute), at.Add(time.Hour)} {
			rec := s.filled(fmt.Sprint(i, j))
			rec.Status, rec.LeaseUntil = status, lease
			rec.Operation = []string{"operation", "other", "oper"}[(i+j)%3]
			rec.ExpiresAt = time.Time{}
			rec.Outbox = state.Outbox{}
			all = append(all, s.create(rec))
		}
	}
	ended := s.store.Capabilities().ListEnded
	for _, q := range []state.Query{
		{},
		{Limit: 1},
		{Limit: 4},
		{Limit: -1},
		{Statuses: []state.Status{state.StatusInProgress}},
		{Statuses: []state.Status{state.StatusInterrupted, state.StatusBlocked}, Limit: 2},
		{Statuses: []state.Status{state.StatusCompensating, state.StatusCompensating}},
		{Operation: "operation"},
		{Operation: "nobody's"},
		{Operation: "other", Statuses: []state.Status{state.StatusInProgress, state.StatusCompensating}, LapsedBefore: at},
		{LapsedBefore: at},
		{LapsedBefore: at.Add(2 * time.Hour), Limit: 3},
		{LapsedBefore: at.Add(-time.Hour)},
	} {
		got := s.list(q)
		for _, rec := range all {
			matches := q.Matches(rec) && (ended || !rec.Status.Ended())
			if matches {
				s.equal(rec, got[rec.Key], fmt.Sprintf("List %+v", q))
			} else {
				require.NotContains(s, got, rec.Key, "List %+v", q)
			}
		}
	}
	for _, q := range []state.Query{
		{Statuses: []state.Status{state.StatusCompleted}},
		{Statuses: []state.Status{state.StatusBlocked, state.StatusFailed}},
		{Statuses: []state.Status{state.StatusReversed}, Operation: "other"},
	} {
		if !ended {
			_, err := s.store.List(s.Context(), q)
			require.ErrorIs(s, err, state.ErrUnsupported, "List %+v", q)
			continue
		}
		got := s.list(q)
		for _, rec := range all {
			require.Equal(s, q.Matches(rec), got[rec.Key] != nil, "List %+v, %s", q, rec.Status)
		}
	}
	s.part("moving", testListFollowsRuns)
}

// testListFollowsRuns: a listing sees each run where it is, not where it was.
func testListFollowsRuns(s *subject) {
	in := func(status state.Status, key string) bool {
		if status.Ended() && !s.store.Capabilities().ListEnded {
			return false
		}
		return s.list(state.Query{Statuses: []state.Status{status}})[key] != nil
	}
	rec := s.create(s.record("record"))
	move := func(to state.Status) {
		ch := s.follow(rec)
		from := rec.Status
		ch.Status = to
		s.commit(rec, ch)
		require.False(s, in(from, rec.Key), "listed under %s after it became %s", from, to)
		if !to.Ended() {
			require.True(s, in(to, rec.Key), "not listed under %s", to)
		}
	}
	require.True(s, in(state.StatusInProgress, rec.Key))
	for _, to := range []state.Status{
		state.StatusBlocked, state.StatusInterrupted, state.StatusInProgress, state.StatusCompleted, state.StatusCompensating,
	} {
		move(to)
	}
	move(state.StatusFailed)
	require.NotContains(s, s.list(state.Query{Statuses: []state.Status{state.StatusCompensating}}), rec.Key)
}

// testPaging: what matches all the while is seen, though other records come, go and change between the pages.
func testPaging(s *subject) {
	const n, limit = 30, 4
	var steady, leaving []*state.Record
	for i := range n {
		rec := s.create(s.record(fmt.Sprint("steady ", i)))
		steady = append(steady, rec)
		if i%3 == 0 {
			leaving = append(leaving, s.create(s.record(fmt.Sprint("leaving ", i))))
		}
	}
	seen := map[string]int{}
	q := state.Query{Limit: limit, Statuses: []state.Status{state.StatusInProgress}}
	for pages := 0; ; pages++ {
		require.Less(s, pages, maxPages, "List never ends")
		page, err := s.store.List(s.Context(), q)
		require.NoError(s, err)
		require.LessOrEqual(s, len(page.Records), limit)
		for _, rec := range page.Records {
			seen[rec.Key]++
		}
		if page.Next == "" {
			break
		}
		q.Cursor = page.Next
		s.stir(pages, steady, leaving)
	}
	for _, rec := range steady {
		require.NotZero(s, seen[rec.Key], "%s matched all the while and was not seen", rec.Key)
	}
	_, err := s.store.List(s.Context(), state.Query{Cursor: "no cursor of this store \x00"})
	require.Error(s, err, "a cursor that no page returned")
}

// stir changes the store between two pages: a record ends, another is deleted, a third moves on, and new ones appear at
// both ends of the order of keys.
func (s *subject) stir(round int, steady, leaving []*state.Record) {
	s.Helper()
	if round < len(leaving) {
		rec := leaving[round]
		if round%2 == 0 {
			require.NoError(s, s.store.Delete(s.Context(), rec.Key))
		} else {
			s.commit(rec, s.end(rec))
		}
	}
	if round < 5 {
		s.create(s.record(fmt.Sprint("!", round)))
		s.create(s.record(fmt.Sprint("zzz", round)))
	}
	rec := steady[round%len(steady)]
	s.commit(rec, s.done(rec, round%3))
}

// names are the keys of records, for messages.
func names(records map[string]*state.Record) []string {
	var keys []string
	for key := range records {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

package statetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// testExpiry: an expired record is gone to every method, though it may still be stored.
func testExpiry(s *subject) {
	s.part("expired", func(s *subject) {
		rec := s.ended("record", now().Add(-2*time.Second))
		s.gone(rec.Key, "expired")
		require.ErrorIs(s, s.store.RequestCancel(s.Context(), rec.Key, state.CancelRequest{At: now()}), state.ErrNotFound)
		var refused *state.ConflictError
		ch := s.follow(rec)
		ch.Status, ch.ExpiresAt = state.StatusCompensating, time.Time{}
		require.ErrorAs(s, s.store.Commit(s.Context(), ch), &refused, "Commit to an expired record")
		require.Nil(s, refused.Current, "Commit to an expired record")
		if s.store.Capabilities().ListEnded {
			page, err := s.store.List(s.Context(), state.Query{})
			require.NoError(s, err)
			require.Empty(s, page.Records, "expired records are not listed")
		}
		s.nothingDue("expired records have no messages")
		fresh := s.record("record")
		s.stored(s.create(fresh), "Create in place of an expired record: nothing of the old one is left")
		existing, err := s.store.Create(s.Context(), s.record("record"))
		require.NoError(s, err)
		s.equal(fresh, existing, "the new record is like any other")
	})
	s.part("later", func(s *subject) {
		rec := s.ended("record", now().Add(time.Hour))
		s.stored(rec, "not expired yet")
		existing, err := s.store.Create(s.Context(), s.record("record"))
		require.NoError(s, err)
		s.equal(rec, existing, "not expired yet")
		ahead := s.record("record")
		ahead.CreatedAt = rec.ExpiresAt.Add(time.Millisecond)
		s.stored(s.create(ahead), "expired to a creator whose clock is ahead")
	})
	s.part("kept", func(s *subject) {
		rec := s.record("record")
		rec.CreatedAt, rec.UpdatedAt = now().Add(-1000*time.Hour), now().Add(-1000*time.Hour)
		rec.Retention = time.Second
		rec = s.create(rec)
		ch := s.end(rec)
		ch.UpdatedAt = rec.UpdatedAt
		ch.Messages = append(ch.Messages, s.message(rec, 0))
		s.commit(rec, ch)
		s.stored(rec, "a record without an expiry is kept, however old it is")
	})
	s.part("reversed", func(s *subject) {
		rec := s.ended("record", now().Add(time.Hour))
		ch := s.follow(rec)
		ch.Status, ch.EndsAs, ch.Owner, ch.ExpiresAt = state.StatusCompensating, state.StatusReversed, "o", time.Time{}
		s.commit(rec, ch)
		s.stored(rec, "a write that leaves the end takes the expiry away")
	})
}

// ended is a record that was completed, with something in all its parts, and with that expiry.
func (s *subject) ended(id string, expires time.Time) *state.Record {
	s.Helper()
	rec := s.record(id)
	rec.Input = s.payload(40_000)
	rec = s.create(rec)
	ch := s.done(rec, 0)
	ch.Steps[0].Output = s.payload(40_000)
	s.commit(rec, ch)
	ch = s.end(rec)
	ch.Response, ch.ExpiresAt = s.payload(40_000), state.CeilSecond(expires)
	ch.Audit = []state.AuditEntry{{At: now(), Actor: "a", Verb: "retry", Note: "n"}}
	s.commit(rec, ch)
	return rec
}

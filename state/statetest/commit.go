package statetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

func testCreate(s *subject) {
	s.gone(s.keyOf("absent"), "before anything was created")
	rec := s.create(s.record("record"))
	s.stored(rec, "Create")

	other := s.filled("record")
	other.ExpiresAt = time.Time{}
	for range 2 {
		existing, err := s.store.Create(s.Context(), other)
		require.NoError(s, err, "Create with a key that is taken")
		s.equal(rec, existing, "Create with a key that is taken returns what has it")
		s.stored(rec, "Create with a key that is taken")
	}
	ended := s.end(rec) // kept for ever
	s.commit(rec, ended)
	existing, err := s.store.Create(s.Context(), other)
	require.NoError(s, err)
	s.equal(rec, existing, "Create with the key of an ended run")
	s.stored(rec, "Create with the key of an ended run")
}

// testFence: each part of the condition refuses the write by itself, and nothing of a refused write is made.
func testFence(s *subject) {
	cases := map[string]func(rec *state.Record, ch *state.Change){
		"another owner":     func(_ *state.Record, ch *state.Change) { ch.IfOwner = "someone else" },
		"no owner":          func(_ *state.Record, ch *state.Change) { ch.IfOwner = "" },
		"an older revision": func(_ *state.Record, ch *state.Change) { ch.IfRevision-- },
		"a later revision":  func(_ *state.Record, ch *state.Change) { ch.IfRevision++ },
		"revision 0":        func(_ *state.Record, ch *state.Change) { ch.IfRevision = 0 },
		"a cancel request":  func(_ *state.Record, ch *state.Change) { ch.IfNoCancel = true },
		"a cancel, dropped": func(_ *state.Record, ch *state.Change) { ch.IfNoCancel, ch.DropCancel = true, true },
		"another relay's claim": func(_ *state.Record, ch *state.Change) {
			ch.Claim = &state.Claim{Token: "b", Until: now().Add(time.Hour)}
		},
		"owner, but no revision": func(_ *state.Record, ch *state.Change) { ch.IfRevision = -1 },
	}
	for name, spoil := range cases {
		rec := s.record(name)
		rec.Cancel = &state.CancelRequest{Reason: "because", Actor: "me", At: now()}
		rec.Outbox = state.Outbox{
			Token: "a", ClaimedUntil: now().Add(time.Hour),
			Messages: []state.OutboxMessage{{Message: s.message(rec, 0)}},
		}
		rec = s.create(rec)
		s.commit(rec, s.done(rec, 0))
		ch := s.filledChange(rec, state.StatusCompensating)
		ch.IfNoCancel, ch.DropCancel, ch.Claim, ch.UpdatedAt = false, false, nil, now()
		spoil(rec, ch)
		s.conflict(s.store.Commit(s.Context(), ch), rec, name)
	}

	s.part("laid down", func(s *subject) {
		rec := s.create(s.record("record"))
		ch := s.follow(rec)
		ch.Status, ch.Owner, ch.LeaseUntil = state.StatusInterrupted, "", time.Time{}
		s.commit(rec, ch)
		stale := s.follow(rec)
		stale.IfOwner, stale.Status = "owner before", state.StatusInProgress
		s.conflict(s.store.Commit(s.Context(), stale), rec, "the holder before, on a run without an owner")
		taken := s.follow(rec)
		taken.Status, taken.Owner, taken.Runs, taken.IfNoCancel = state.StatusInProgress, "owner after", 2, true
		s.commit(rec, taken)
		s.stored(rec, "taken up")
	})
	s.part("lapsed claim", func(s *subject) {
		rec := s.record("record")
		rec.Outbox = state.Outbox{
			Token: "a", ClaimedUntil: now().Add(-time.Second),
			Messages: []state.OutboxMessage{{Message: s.message(rec, 0)}},
		}
		rec = s.create(rec)
		ch := s.follow(rec)
		ch.Claim = &state.Claim{Token: "b", Until: now().Add(time.Minute)}
		s.commit(rec, ch)
		s.stored(rec, "a claim where the one before has lapsed")
	})
	s.part("absent", func(s *subject) {
		rec := s.record("record")
		err := s.store.Commit(s.Context(), s.done(rec, 0))
		var refused *state.ConflictError
		require.ErrorAs(s, err, &refused, "Commit to a record that isn't there")
		require.Nil(s, refused.Current)
		s.gone(rec.Key, "Commit to a record that isn't there must not make one")
	})
}

// testTransitions: every pair of statuses; what the table doesn't allow is refused as a defect, and not written.
func testTransitions(s *subject) {
	for _, from := range state.Statuses() {
		for _, to := range state.Statuses() {
			name := string(from) + " to " + string(to)
			rec := s.record(name)
			rec.Status = from
			rec = s.create(rec)
			ch := s.done(rec, 0)
			ch.Status = to
			if from.CanBecome(to) {
				s.commit(rec, ch)
				s.stored(rec, name)
				continue
			}
			s.defect(s.store.Commit(s.Context(), ch), rec, name)
		}
	}
	rec := s.create(s.record("no such status"))
	ch := s.done(rec, 0)
	ch.Status = "NONSENSE"
	s.defect(s.store.Commit(s.Context(), ch), rec, "a status that doesn't exist")
	ch = s.done(rec, 0)
	ch.ExpiresAt = state.CeilSecond(now().Add(time.Hour))
	s.defect(s.store.Commit(s.Context(), ch), rec, "an expiry on a run that goes on")
	ch = s.end(rec)
	ch.ExpiresAt = state.CeilSecond(now().Add(time.Hour))
	ch.Messages = append(ch.Messages, s.message(rec, 0))
	s.defect(s.store.Commit(s.Context(), ch), rec, "an expiry together with messages")
	ch = s.done(rec, 0)
	ch.Steps[0].Index = -1
	s.defect(s.store.Commit(s.Context(), ch), rec, "a step before the first")

	s.part("stale", func(s *subject) {
		rec := s.record("record")
		rec.Status = state.StatusFailed
		rec = s.create(rec)
		ch := s.follow(rec)
		ch.Status, ch.IfRevision = state.StatusInProgress, 7
		s.conflict(s.store.Commit(s.Context(), ch), rec, "the fence comes before the transition")
	})
}

func (s *subject) defect(err error, want *state.Record, why string) {
	s.Helper()
	require.ErrorIs(s, err, state.ErrTransition, why)
	require.NotErrorIs(s, err, state.ErrConflict, why)
	s.stored(want, why)
}

// testLostAnswers: a write that is sent again because its answer was lost is told by its write ID.
func testLostAnswers(s *subject) {
	rec := s.record("record")
	s.create(rec)
	for range 3 {
		existing, err := s.store.Create(s.Context(), rec)
		require.NoError(s, err)
		require.NotNil(s, existing)
		require.Equal(s, rec.WriteID, existing.WriteID, "Create, sent again")
	}
	ch := s.done(rec, 0)
	ch.Messages = append(ch.Messages, s.message(rec, 0))
	ch.Audit = []state.AuditEntry{{At: now(), Actor: "me"}}
	s.commit(rec, ch)
	for range 3 {
		s.conflict(s.store.Commit(s.Context(), ch), rec, "Commit, sent again")
	}
	require.NoError(s, s.store.RequestCancel(s.Context(), rec.Key, state.CancelRequest{Reason: "r", Actor: "a", At: now()}))
	rec.Cancel = s.get(rec.Key).Cancel
	require.Equal(s, ch.WriteID, s.get(rec.Key).WriteID, "a cancel request is no write of a holder's")
	s.conflict(s.store.Commit(s.Context(), ch), rec, "Commit, sent again after a cancel request")

	s.part("ending", func(s *subject) {
		rec := s.create(s.record("record"))
		ch := s.end(rec)
		ch.Response, ch.ExpiresAt = []byte(`{"a":1}`), rec.Expiry(now())
		s.commit(rec, ch)
		s.conflict(s.store.Commit(s.Context(), ch), rec, "the last Commit, sent again")
	})
}

func testDelete(s *subject) {
	require.NoError(s, s.store.Delete(s.Context(), s.keyOf("absent")), "Delete of nothing")
	for _, status := range state.Statuses() {
		rec := s.record(string(status))
		rec.Status = status
		rec.Outbox.Messages = []state.OutboxMessage{{Message: s.message(rec, 0)}}
		rec.Input = s.payload(50_000)
		rec = s.create(rec)
		for range 2 {
			require.NoError(s, s.store.Delete(s.Context(), rec.Key))
			s.gone(rec.Key, "Delete of "+string(status))
		}
		err := s.store.Commit(s.Context(), s.done(rec, 0))
		var refused *state.ConflictError
		require.ErrorAs(s, err, &refused, "Commit after Delete")
		require.Nil(s, refused.Current, "Commit after Delete")
		s.gone(rec.Key, "Commit after Delete must not make half a record")
		require.ErrorIs(s, s.store.RequestCancel(s.Context(), rec.Key, state.CancelRequest{At: now()}), state.ErrNotFound)
		s.gone(rec.Key, "RequestCancel after Delete must not make half a record")
	}
	s.nothingDue("the messages of deleted records")
	page, err := s.store.List(s.Context(), state.Query{})
	require.NoError(s, err)
	require.Empty(s, page.Records, "deleted records are not listed")
	again := s.record(string(state.StatusBlocked))
	s.stored(s.create(again), "Create after Delete: nothing of the old record is left")
}

package statetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	// long is a claim's lease that outlives the test, short one that lapses while it waits.
	long  = time.Hour
	short = time.Millisecond
	// tries is how often the suite asks for what must not come.
	tries = 3
)

// patience is how long it waits for what must come: a store need not look at all of its records in one Claim. A variable
// for the suite's own tests alone.
var patience = 20 * time.Second

// claim claims with a long lease until it has the messages of n runs.
func (s *subject) claim(n int) map[string]outbox.Batch {
	s.Helper()
	return s.claimWithin(n, 1000, long)
}

func (s *subject) claimWithin(n, limit int, lease time.Duration) map[string]outbox.Batch {
	s.Helper()
	got := map[string]outbox.Batch{}
	for deadline := time.Now().Add(patience); ; {
		batches, err := s.store.Claim(s.Context(), limit, lease)
		require.NoError(s, err, "Claim")
		for _, b := range batches {
			require.NotEmpty(s, b.Token, "a batch has a token")
			require.NotEmpty(s, b.Messages, "a batch has messages")
			got[b.RunKey] = b
		}
		if len(got) >= n {
			return got
		}
		if len(batches) == 0 {
			time.Sleep(time.Millisecond)
		}
		if time.Now().After(deadline) {
			require.Fail(s, "due messages are not handed out", "of %d runs, want %d", len(got), n)
		}
	}
}

// nothingDue checks that Claim hands nothing out.
func (s *subject) nothingDue(why string) {
	s.Helper()
	for range tries {
		batches, err := s.store.Claim(s.Context(), 1000, long)
		require.NoError(s, err, why)
		require.Empty(s, batches, why)
	}
}

// emit commits the messages from number from on, n of them, with a step of the run.
func (s *subject) emit(rec *state.Record, from, n int) {
	s.Helper()
	ch := s.done(rec, from%len(rec.Steps))
	for i := range n {
		ch.Messages = append(ch.Messages, s.message(rec, from+i))
	}
	s.commit(rec, ch)
}

// are checks that the messages are those of rec with these numbers, whole and in order.
func (s *subject) are(rec *state.Record, got []outbox.Message, why string, numbers ...int) {
	s.Helper()
	require.Len(s, got, len(numbers), why)
	for i, n := range numbers {
		require.Empty(s, Differences(s.message(rec, n), got[i]), why)
	}
}

func ids(msgs []outbox.Message) (all []string) {
	for _, m := range msgs {
		all = append(all, m.ID)
	}
	return all
}

// outboxIs checks what is left of the run's outbox, and that the relay's calls left the rest of the record alone.
func (s *subject) outboxIs(rec *state.Record, claimed bool, why string, numbers ...int) *state.Record {
	s.Helper()
	got := s.get(rec.Key)
	var msgs []outbox.Message
	for _, m := range got.Outbox.Messages {
		msgs = append(msgs, m.Message)
	}
	s.are(rec, msgs, why, numbers...)
	require.Equal(s, claimed, got.Outbox.Token != "", "%s: claimed", why)
	require.Equal(s, claimed, !got.Outbox.ClaimedUntil.IsZero(), "%s: claimed until", why)
	rest := got.Clone()
	rest.Outbox, rest.ExpiresAt, rest.Audit = rec.Outbox, rec.ExpiresAt, rec.Audit
	s.equal(rec, rest, why+": owner, revision and the rest are no business of a relay's")
	return got
}

// testOutboxOrder: the messages of a run come in the order of their emission, over all its commits, and leave with Sent.
func testOutboxOrder(s *subject) {
	s.nothingDue("an empty store")
	rec, other := s.create(s.record("record")), s.create(s.record("other"))
	s.nothingDue("runs without messages")
	s.emit(rec, 0, 2)
	s.emit(other, 0, 1)
	s.emit(rec, 2, 1)
	ch := s.end(rec)
	ch.Messages = []outbox.Message{s.message(rec, 3)}
	s.commit(rec, ch)
	s.stored(rec, "a record with messages")

	got := s.claim(2)
	s.are(rec, got[rec.Key].Messages, "in order", 0, 1, 2, 3)
	s.are(other, got[other.Key].Messages, "another run's own", 0)
	require.NotEqual(s, got[rec.Key].Token, got[other.Key].Token, "a token per run")
	s.nothingDue("all is claimed")
	after := s.outboxIs(rec, true, "claimed", 0, 1, 2, 3)
	require.Equal(s, got[rec.Key].Token, after.Outbox.Token)
	require.WithinDuration(s, time.Now().Add(long), after.Outbox.ClaimedUntil, time.Minute)

	require.NoError(s, s.store.Sent(s.Context(), got[rec.Key], ids(got[rec.Key].Messages)))
	after = s.outboxIs(rec, false, "sent")
	require.WithinDuration(s, time.Now().Add(rec.Retention), after.ExpiresAt, time.Minute, "an ended run expires once all is sent")
	require.Zero(s, after.ExpiresAt.Nanosecond())
	s.outboxIs(other, true, "the other run", 0)
	s.nothingDue("all is sent or claimed")
}

// testOutboxFence: a relay whose claim has gone to another one can do nothing more.
func testOutboxFence(s *subject) {
	rec := s.create(s.record("record"))
	s.emit(rec, 0, 2)
	first := s.claimWithin(1, 1000, short)[rec.Key]
	second := s.claim(1)[rec.Key]
	s.are(rec, second.Messages, "the same messages, once the lease has lapsed", 0, 1)
	require.NotEqual(s, first.Token, second.Token, "each claim has a token of its own")
	require.ErrorIs(s, s.store.Sent(s.Context(), first, ids(first.Messages)), outbox.ErrClaimLost)
	require.ErrorIs(s, s.store.Sent(s.Context(), first, nil), outbox.ErrClaimLost)
	require.ErrorIs(s, s.store.Park(s.Context(), first, first.Messages[0].ID, "r"), outbox.ErrClaimLost)
	none := first
	none.Token = ""
	require.ErrorIs(s, s.store.Sent(s.Context(), none, ids(first.Messages)), outbox.ErrClaimLost)
	after := s.outboxIs(rec, true, "the first relay's claim is lost", 0, 1)
	require.Equal(s, second.Token, after.Outbox.Token)

	require.NoError(s, s.store.Sent(s.Context(), second, ids(second.Messages)))
	require.ErrorIs(s, s.store.Sent(s.Context(), second, ids(second.Messages)), outbox.ErrClaimLost, "the claim has been released")
	require.ErrorIs(s, s.store.Sent(s.Context(), none, nil), outbox.ErrClaimLost, "no claim, no token")
	s.outboxIs(rec, false, "sent")

	s.part("lapsed", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 2)
		b := s.claimWithin(1, 1000, short)[rec.Key]
		s.lapse(b)
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages[:1])), "nobody else has claimed meanwhile")
		s.outboxIs(rec, true, "the second is left", 1)
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)), "what is gone already is passed over")
		s.outboxIs(rec, false, "sent")
	})
	s.part("gone", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 1)
		b := s.claim(1)[rec.Key]
		require.NoError(s, s.store.Delete(s.Context(), rec.Key))
		require.ErrorIs(s, s.store.Sent(s.Context(), b, ids(b.Messages)), outbox.ErrClaimLost)
		require.ErrorIs(s, s.store.Park(s.Context(), b, b.Messages[0].ID, "r"), outbox.ErrClaimLost)
		s.gone(rec.Key, "a relay must not make half a record")
		rec = s.create(s.record("record"))
		require.ErrorIs(s, s.store.Sent(s.Context(), b, nil), outbox.ErrClaimLost, "another record of the same key")
		s.stored(rec, "another record of the same key")
	})
}

// lapse waits for the end of a claim.
func (s *subject) lapse(b outbox.Batch) {
	s.Helper()
	until := s.get(b.RunKey).Outbox.ClaimedUntil
	require.Eventually(s, func() bool { return time.Now().After(until) }, patience, time.Millisecond)
}

// testOutboxLimit: no more messages than asked for, but something of every run in the end.
func testOutboxLimit(s *subject) {
	a, b := s.create(s.record("a")), s.create(s.record("b"))
	s.emit(a, 0, 3)
	s.emit(b, 0, 3)
	first := s.claimWithin(1, 4, long)
	require.Len(s, first, 1, "both would be more than four")
	second := s.claimWithin(1, 2, long)
	require.Len(s, second, 1)
	for key, batch := range second {
		require.NotContains(s, first, key)
		rec := map[string]*state.Record{a.Key: a, b.Key: b}[key]
		s.are(rec, batch.Messages, "the first two of three", 0, 1)
		s.nothingDue("the third is behind the claim")
		require.NoError(s, s.store.Sent(s.Context(), batch, ids(batch.Messages)))
		s.outboxIs(rec, false, "the claim is released with its own messages", 2)
		s.are(rec, s.claim(1)[key].Messages, "the third", 2)
	}
	for range tries {
		batches, err := s.store.Claim(s.Context(), 0, long)
		require.NoError(s, err)
		require.Empty(s, batches, "limit 0")
	}
}

// testOutboxSent: what is sent leaves, what isn't stays claimed until it is dealt with or given up.
func testOutboxSent(s *subject) {
	rec := s.create(s.record("record"))
	s.emit(rec, 0, 4)
	b := s.claim(1)[rec.Key]
	require.NoError(s, s.store.Sent(s.Context(), b, []string{b.Messages[1].ID}))
	s.outboxIs(rec, true, "one in the middle", 0, 2, 3)
	require.NoError(s, s.store.Sent(s.Context(), b, []string{b.Messages[1].ID, b.Messages[0].ID, "unknown", messageID(rec, 77)}))
	s.outboxIs(rec, true, "with IDs that are gone or were never there", 2, 3)
	s.nothingDue("the rest is still claimed")
	require.NoError(s, s.store.Sent(s.Context(), b, nil), "given up")
	s.outboxIs(rec, false, "given up", 2, 3)
	b = s.claim(1)[rec.Key]
	s.are(rec, b.Messages, "due again", 2, 3)

	s.emit(rec, 4, 2)
	s.outboxIs(rec, true, "a commit while a claim is live", 2, 3, 4, 5)
	s.nothingDue("the new ones wait for the claim")
	require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)))
	s.outboxIs(rec, false, "those claimed have left", 4, 5)
	s.are(rec, s.claim(1)[rec.Key].Messages, "the new ones", 4, 5)
}

// testSettling: a record with unsent messages does not expire, and one that has ended gets its expiry once they are gone,
// whoever notices.
func testSettling(s *subject) {
	settled := func(rec *state.Record, why string) {
		s.Helper()
		after := s.outboxIs(rec, false, why)
		require.WithinDuration(s, time.Now().Add(rec.Retention), after.ExpiresAt, time.Minute, why)
		rec.ExpiresAt = after.ExpiresAt
	}
	s.part("sent before the end", func(s *subject) {
		// The holder ends the run without an expiry, since it has not seen that the messages are gone already.
		rec, ever := s.create(s.record("record")), s.record("for ever")
		ever.Retention = 0
		ever = s.create(ever)
		for _, r := range []*state.Record{rec, ever} {
			s.emit(r, 0, 1)
		}
		for _, b := range s.claim(2) {
			require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)))
		}
		for _, r := range []*state.Record{rec, ever} {
			r.Outbox = state.Outbox{}
			s.stored(r, "sent, but not ended")
			s.commit(r, s.end(r))
			s.stored(r, "ended")
		}
		s.claimUntil(func() bool { return !s.get(rec.Key).ExpiresAt.IsZero() }, "Claim closes an ended run with nothing left to send")
		settled(rec, "closed by Claim")
		s.nothingDue("closed")
		s.stored(rec, "closed once")
		s.stored(ever, "kept for ever")
	})
	s.part("in parts", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 2)
		s.commit(rec, s.end(rec))
		b := s.claim(1)[rec.Key]
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages[:1])))
		after := s.outboxIs(rec, true, "one is left", 1)
		require.True(s, after.ExpiresAt.IsZero(), "one is left")
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages[1:])))
		settled(rec, "all sent")
	})
	s.part("dropped", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 1)
		s.commit(rec, s.end(rec))
		require.NoError(s, s.store.Park(s.Context(), s.claim(1)[rec.Key], messageID(rec, 0), "r"))
		require.NoError(s, s.store.Unpark(s.Context(), messageID(rec, 0), false, "n"))
		settled(rec, "the last message is dropped")
	})
	s.part("reversed", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 1)
		s.commit(rec, s.end(rec))
		ch := s.follow(rec)
		ch.Status, ch.EndsAs = state.StatusCompensating, state.StatusReversed
		s.commit(rec, ch)
		b := s.claim(1)[rec.Key]
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)))
		after := s.outboxIs(rec, false, "sent")
		require.True(s, after.ExpiresAt.IsZero(), "a run that goes on does not expire")
	})
}

// claimUntil calls Claim until done, and must be handed nothing meanwhile.
func (s *subject) claimUntil(done func() bool, why string) {
	s.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		batches, err := s.store.Claim(s.Context(), 1000, long)
		require.NoError(s, err, why)
		require.Empty(s, batches, why)
		require.True(s, time.Now().Before(deadline), why)
		time.Sleep(time.Millisecond)
	}
}

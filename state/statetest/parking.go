package statetest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// parked walks through all pages of Parked.
func (s *subject) parked() (all []outbox.Message) {
	s.Helper()
	cursor := ""
	for range maxPages {
		msgs, next, err := s.store.Parked(s.Context(), cursor)
		require.NoError(s, err, "Parked")
		all = append(all, msgs...)
		if next == "" {
			return all
		}
		cursor = next
	}
	require.Fail(s, "Parked never ends")
	return nil
}

// testOutboxPark: a refused message waits for a person, and holds back what the same run emits after it, but nobody else.
func testOutboxPark(s *subject) {
	rec, other := s.create(s.record("record")), s.create(s.record("other"))
	s.emit(rec, 0, 4)
	s.emit(other, 0, 1)
	require.Empty(s, s.parked())
	got := s.claim(2)
	require.NoError(s, s.store.Park(s.Context(), got[rec.Key], messageID(rec, 1), "refused: no such topic"))
	require.NoError(s, s.store.Sent(s.Context(), got[other.Key], ids(got[other.Key].Messages)), "other runs go on")
	after := s.outboxIs(rec, false, "parked", 0, 1, 2, 3)
	require.Equal(s, "refused: no such topic", after.Outbox.Messages[1].Parked)
	require.Empty(s, after.Outbox.Messages[0].Parked+after.Outbox.Messages[2].Parked+after.Outbox.Messages[3].Parked)
	s.are(rec, s.parked(), "those behind it have no reason of their own", 1)
	require.ErrorIs(s, s.store.Park(s.Context(), got[rec.Key], messageID(rec, 0), "r"), outbox.ErrClaimLost, "the claim was released")

	b := s.claim(1)[rec.Key]
	s.are(rec, b.Messages, "what was emitted before it is due", 0)
	require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)))
	s.nothingDue("what was emitted after it is not")
	s.emit(rec, 4, 1)
	s.nothingDue("nor what is emitted now")
	s.commit(rec, s.end(rec))
	s.outboxIs(rec, false, "ended", 1, 2, 3, 4)

	for _, id := range []string{messageID(rec, 2), messageID(rec, 99), messageID(other, 0), "", "/", "nonsense", s.keyOf("absent") + "/a/0"} {
		for _, resend := range []bool{true, false} {
			require.ErrorIs(s, s.store.Unpark(s.Context(), id, resend, "n"), outbox.ErrNotParked, "Unpark %q", id)
		}
	}
	require.Empty(s, s.get(rec.Key).Audit, "a refused Unpark leaves no line")

	ctx := state.ActorContext(s.Context(), "the operator")
	require.NoError(s, s.store.Unpark(ctx, messageID(rec, 1), true, "topic made"))
	require.Empty(s, s.parked())
	require.ErrorIs(s, s.store.Unpark(ctx, messageID(rec, 1), true, "again"), outbox.ErrNotParked)
	b = s.claim(1)[rec.Key]
	s.are(rec, b.Messages, "it and its successors, in order", 1, 2, 3, 4)
	require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages[:1])))
	require.NoError(s, s.store.Park(s.Context(), b, messageID(rec, 2), ""))
	require.NotEmpty(s, s.get(rec.Key).Outbox.Messages[0].Parked, "a reason even if none was given")
	require.NoError(s, s.store.Unpark(ctx, messageID(rec, 2), false, "not needed"))
	after = s.outboxIs(rec, false, "dropped", 3, 4)
	s.audited(after, "unpark_resend", messageID(rec, 1), "topic made")
	s.audited(after, "unpark_drop", messageID(rec, 2), "not needed")
	s.are(rec, s.claim(1)[rec.Key].Messages, "the successors of what was dropped", 3, 4)

	s.part("corners", testParkCorners)
}

// audited checks the next line of the record's audit, and takes it away.
func (s *subject) audited(rec *state.Record, verb, id, note string) {
	s.Helper()
	require.NotEmpty(s, rec.Audit)
	line := rec.Audit[0]
	rec.Audit = rec.Audit[1:]
	require.WithinDuration(s, now(), line.At, patience)
	require.Equal(s, state.UnparkAudit("the operator", id, verb == "unpark_resend", note, line.At), line)
}

func testParkCorners(s *subject) {
	rec := s.create(s.record("record"))
	s.emit(rec, 0, 3)
	b := s.claim(1)[rec.Key]
	require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages[:1])))
	require.NoError(s, s.store.Park(s.Context(), b, messageID(rec, 0), "r"), "a message that is gone: nothing to park")
	s.outboxIs(rec, false, "the claim is released all the same", 1, 2)
	require.Empty(s, s.parked())

	for n, reason := range map[int]string{2: strings.Repeat("é", 1000), 1: "second"} {
		b = s.claim(1)[rec.Key]
		require.NoError(s, s.store.Park(s.Context(), b, messageID(rec, n), reason))
		got := s.get(rec.Key).Outbox.Messages[n-1].Parked
		require.Equal(s, state.Cut(reason), got, "a reason is cut like any message that is stored")
		if n == 1 {
			break // the one behind it can't be claimed now
		}
	}
	first := s.parked()[0].ID
	require.NoError(s, s.store.Unpark(s.Context(), first, true, ""))
	require.Equal(s, "unknown", s.get(rec.Key).Audit[0].Actor, "nobody was named")
}

// testParkedPages: more than a page of them, while some come and go.
func testParkedPages(s *subject) {
	want := map[string]bool{}
	var leaving []string
	for i := range state.DefaultPage + state.DefaultPage/4 {
		rec := s.record(fmt.Sprint(i))
		rec.Outbox.Messages = []state.OutboxMessage{{Message: s.message(rec, 0)}, {Message: s.message(rec, 1), Parked: "reason"}, {Message: s.message(rec, 2)}}
		rec = s.create(rec)
		want[messageID(rec, 1)] = true
		if i%20 == 0 {
			leaving = append(leaving, messageID(rec, 1))
		}
	}
	seen := map[string]bool{}
	cursor := ""
	for pages := 0; ; pages++ {
		require.Less(s, pages, maxPages, "Parked never ends")
		msgs, next, err := s.store.Parked(s.Context(), cursor)
		require.NoError(s, err)
		for _, m := range msgs {
			require.True(s, want[m.ID], "%s is not parked", m.ID)
			seen[m.ID] = true
		}
		if cursor = next; next == "" {
			break
		}
		if pages < len(leaving) {
			require.NoError(s, s.store.Unpark(s.Context(), leaving[pages], false, "n"))
		}
	}
	for _, id := range leaving {
		delete(want, id)
	}
	for id := range want {
		require.True(s, seen[id], "%s was parked all the while and was not seen", id)
	}
	_, _, err := s.store.Parked(s.Context(), "no cursor of this store \x00")
	require.Error(s, err, "a cursor that no page returned")
}

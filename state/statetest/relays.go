package statetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// journal is what relays were handed, per run, in order.
type journal struct {
	mu  sync.Mutex
	got map[string][]string
}

func (j *journal) add(b outbox.Batch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.got[b.RunKey] = append(j.got[b.RunKey], ids(b.Messages)...)
}

func (j *journal) count() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, msgs := range j.got {
		n += len(msgs)
	}
	return n
}

// relay claims and sends until stop says so. It is patient as long as some relay gets something.
func (s *subject) relay(j *journal, limit int, stop func() bool) {
	seen, deadline := 0, time.Now().Add(patience)
	for !stop() {
		if n := j.count(); n > seen {
			seen, deadline = n, time.Now().Add(patience)
		}
		batches, err := s.store.Claim(s.Context(), limit, long)
		if !s.noError(err, "Claim") {
			return
		}
		for _, b := range batches {
			j.add(b)
			time.Sleep(time.Millisecond) // publishing takes its time, in which others look for work
			if !s.noError(s.store.Sent(s.Context(), b, ids(b.Messages)), "Sent") {
				return
			}
		}
		if len(batches) == 0 {
			time.Sleep(time.Millisecond)
		}
		if time.Now().After(deadline) {
			s.Errorf("a relay never saw all messages")
			return
		}
	}
}

// testRelays: several relays at once never get one message twice while their leases are live.
func testRelays(s *subject) {
	const runs, relays = 24, 4
	want := map[string][]string{}
	total := 0
	for i := range runs {
		rec := s.create(s.record(fmt.Sprint(i)))
		s.emit(rec, 0, 1+i%3)
		for n := range 1 + i%3 {
			want[rec.Key] = append(want[rec.Key], messageID(rec, n))
			total++
		}
	}
	j := &journal{got: map[string][]string{}}
	var all []func()
	for range relays {
		all = append(all, func() { s.relay(j, 5, func() bool { return j.count() >= total }) })
	}
	together(all...)
	require.Equal(s, want, j.got, "each message once, in the order of its run")
	s.nothingDue("all are sent")
}

// testOutboxOfALiveRun: a relay at work on a run's messages never gets in the way of the run's own writes.
func testOutboxOfALiveRun(s *subject) {
	const commits = 20
	rec := s.create(s.record("record"))
	j := &journal{got: map[string][]string{}}
	var want []string
	var ended atomic.Bool
	holder := func() {
		defer ended.Store(true)
		for i := range commits {
			ch := s.done(rec, i%len(rec.Steps))
			ch.IfNoCancel = true
			ch.Messages = []outbox.Message{s.message(rec, 2*i), s.message(rec, 2*i+1)}
			want = append(want, ids(ch.Messages)...)
			if !s.noError(s.store.Commit(s.Context(), ch), "the holder's Commit") || !s.noError(ch.Apply(rec), "Apply") {
				return
			}
		}
	}
	together(holder, func() {
		s.relay(j, 10, func() bool { return ended.Load() && j.count() >= 2*commits })
	})
	require.Equal(s, want, j.got[rec.Key], "each message once, in order")
	s.outboxIs(rec, false, "a relay at work beside a holder")
}

// testClaimByCommit: a closing write takes the messages under its own relay's claim, unless another relay has them.
func testClaimByCommit(s *subject) {
	rec := s.create(s.record("record"))
	s.emit(rec, 0, 1)
	ch := s.end(rec)
	ch.Messages = []outbox.Message{s.message(rec, 1)}
	ch.Claim = &state.Claim{Token: "token of the inline relay", Until: now().Add(long)}
	s.commit(rec, ch)
	s.stored(rec, "a claim by a commit")
	s.nothingDue("claimed by the commit")
	b := outbox.Batch{RunKey: rec.Key, Token: ch.Claim.Token, Messages: rec.Outbox.Sendable()}
	require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)))
	after := s.outboxIs(rec, false, "sent")
	require.False(s, after.ExpiresAt.IsZero(), "an ended run expires once all is sent")

	s.part("taken", func(s *subject) {
		rec := s.create(s.record("record"))
		s.emit(rec, 0, 1)
		b := s.claim(1)[rec.Key]
		ch := s.end(rec)
		ch.Messages = []outbox.Message{s.message(rec, 1)}
		ch.Claim = &state.Claim{Token: "token of the inline relay", Until: now().Add(long)}
		rec.Outbox.Token, rec.Outbox.ClaimedUntil = b.Token, s.get(rec.Key).Outbox.ClaimedUntil
		s.conflict(s.store.Commit(s.Context(), ch), rec, "a claim where another is live")
		ch.Claim = nil
		s.commit(rec, ch)
		s.stored(rec, "the same write without a claim")
		require.NoError(s, s.store.Sent(s.Context(), b, ids(b.Messages)), "the relay's claim has not suffered")
		rec.Outbox = state.Outbox{}
		rec.Outbox.Messages = append(rec.Outbox.Messages, state.OutboxMessage{Message: s.message(rec, 1)})
		s.stored(rec, "the relay's messages have left")
		s.are(rec, s.claim(1)[rec.Key].Messages, "the inline relay's message is left to the other", 1)
	})
	s.part("lapsed", func(s *subject) {
		rec := s.create(s.record("record"))
		ch := s.done(rec, 0)
		ch.Messages = []outbox.Message{s.message(rec, 0)}
		ch.Claim = &state.Claim{Token: "a relay that died", Until: now().Add(-time.Second)}
		s.commit(rec, ch)
		got := s.claim(1)
		require.Equal(s, []string{rec.Key}, slices.Collect(maps.Keys(got)), "a claim that has lapsed")
		dead := outbox.Batch{RunKey: rec.Key, Token: ch.Claim.Token, Messages: rec.Outbox.Sendable()}
		require.ErrorIs(s, s.store.Sent(s.Context(), dead, ids(dead.Messages)), outbox.ErrClaimLost)
	})
}

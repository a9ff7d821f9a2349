package statetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// testFields: every field of a record, and everything that a change can say, comes back.
func testFields(s *subject) {
	going, ended := s.filled("going"), s.filled("ended")
	going.ExpiresAt = time.Time{}
	ended.Status, ended.Outbox = state.StatusCompleted, state.Outbox{}
	ended.ExpiresAt = state.CeilSecond(now().Add(time.Hour))
	covered(s, going, ended)
	s.stored(s.create(going), "Create")
	s.stored(s.create(ended), "Create of an ended record")
	bare := &state.Record{Key: s.keyOf("bare"), Status: state.StatusInProgress}
	s.stored(s.create(bare), "Create of a record with hardly a value")

	s.part("nothing new", func(s *subject) {
		rec := s.filled("header")
		rec.ExpiresAt = time.Time{}
		rec = s.create(rec)
		ch := &state.Change{Key: rec.Key, IfOwner: rec.Owner, IfRevision: rec.Revision, WriteID: "w", Status: state.StatusCompensating}
		s.commit(rec, ch)
		s.stored(rec, "a change that clears the header and says nothing new")
	})
	s.part("everything new", testFilledChanges)
	s.part("one thing new", testEachNewThing)
	if s.suite.reopen != nil && s.store.Capabilities().Durable {
		s.store = s.suite.reopen(s.T, s.store)
		for _, rec := range []*state.Record{going, ended, bare} {
			s.stored(rec, "after the store was opened again")
		}
	}
}

// filled is a record with a value in every field, and as consistent as it has to be.
func (s *subject) filled(id string) *state.Record {
	rec := new(state.Record)
	Fill(s, rec)
	rec.Key = s.keyOf(id)
	rec.Plan = []string{"step one", "step two"}
	rec.Pivot, rec.CurrentStep = rec.Plan[1], rec.Plan[0]
	for i := range rec.Steps {
		rec.Steps[i].Name = rec.Plan[i]
	}
	rec.EndsAs = state.StatusReversed
	rec.ExpiresAt = state.CeilSecond(rec.ExpiresAt)
	for i := range rec.Outbox.Messages {
		rec.Outbox.Messages[i].ID = messageID(rec, i)
	}
	return rec
}

// messageID is the ID of the run's message number n, in the form that all have: a derived key and an index.
func messageID(r *state.Record, n int) string { return fmt.Sprintf("%s/step/%d", r.Key, n) }

// filledChange is a change of rec with a value in every field, except that one without messages has an expiry instead.
func (s *subject) filledChange(rec *state.Record, to state.Status) *state.Change {
	ch := new(state.Change)
	Fill(s, ch)
	ch.Key, ch.IfOwner, ch.IfRevision, ch.Status = rec.Key, rec.Owner, rec.Revision, to
	ch.EndsAs = state.StatusFailed
	ch.Plan = append(append([]string{}, rec.Plan...), "one more")
	ch.Pivot, ch.CurrentStep = "one more", "one more"
	ch.Steps[0].Index, ch.Steps[0].Name = 0, ch.Plan[0]
	ch.Steps[1].Index, ch.Steps[1].Name = len(rec.Steps), "one more"
	for i := range ch.Messages {
		ch.Messages[i].ID = messageID(rec, 10+i)
	}
	if to.Ended() {
		ch.Messages, ch.Claim, ch.ExpiresAt = nil, nil, state.CeilSecond(ch.ExpiresAt)
	} else {
		ch.ExpiresAt = time.Time{}
	}
	ch.IfNoCancel, ch.DropCancel = rec.Cancel == nil, rec.Cancel != nil
	return ch
}

func testFilledChanges(s *subject) {
	cancelled := s.filled("cancelled")
	cancelled.ExpiresAt, cancelled.Outbox = time.Time{}, state.Outbox{}
	plain := cancelled.Clone()
	plain.Key, plain.Cancel = s.keyOf("plain"), nil
	ending := plain.Clone()
	ending.Key = s.keyOf("ending")
	first, second, third := s.filledChange(cancelled, state.StatusCompensating), s.filledChange(plain, state.StatusBlocked), s.filledChange(ending, state.StatusFailed)
	third.Steps[0].Index, third.Steps[1].Index = 1, 0 // both replace
	third.Steps[0].Name, third.Steps[1].Name = third.Plan[1], third.Plan[0]
	third.Plan, third.Pivot = nil, ""
	covered(s, first, second, third)
	for _, c := range []struct {
		rec *state.Record
		ch  *state.Change
	}{{cancelled, first}, {plain, second}, {ending, third}} {
		rec := s.create(c.rec)
		s.commit(rec, c.ch)
		s.stored(rec, "a change with everything, to "+string(c.ch.Status))
	}
}

// testEachNewThing makes changes that say one new thing each: what a store updates piecemeal must not hang together.
func testEachNewThing(s *subject) {
	things := map[string]func(rec *state.Record, ch *state.Change){
		"nothing":   func(*state.Record, *state.Change) {},
		"a step":    func(_ *state.Record, ch *state.Change) { ch.Steps = s.stepDone(ch, 1) },
		"two steps": func(_ *state.Record, ch *state.Change) { ch.Steps = append(s.stepDone(ch, 2), s.stepDone(ch, 0)...) },
		"a plan": func(rec *state.Record, ch *state.Change) {
			ch.Plan, ch.Pivot = append(rec.Plan, "x"), "x"
			ch.Steps = s.stepDone(ch, 3)
		},
		"a plan's pivot":  func(rec *state.Record, ch *state.Change) { ch.Plan, ch.Pivot = rec.Plan, "third" },
		"a response":      func(_ *state.Record, ch *state.Change) { ch.Response = []byte(`[1]`) },
		"a null response": func(_ *state.Record, ch *state.Change) { ch.Response = []byte(`null`) },
		"no cancel":       func(_ *state.Record, ch *state.Change) { ch.DropCancel = true },
		"a message":       func(rec *state.Record, ch *state.Change) { ch.Messages = []outbox.Message{s.message(rec, 7)} },
		"a claim": func(_ *state.Record, ch *state.Change) {
			ch.Claim = &state.Claim{Token: "token", Until: now().Add(time.Hour)}
		},
		"an audit line": func(_ *state.Record, ch *state.Change) {
			ch.Audit = []state.AuditEntry{{At: now(), Actor: "me", Verb: "retry"}}
		},
		"a failure": func(_ *state.Record, ch *state.Change) { ch.Failure = &state.Failure{Code: "code", At: now()} },
	}
	for name, set := range things {
		rec := s.record(name)
		rec.Response, rec.Cancel, rec.Audit = []byte(`"old"`), &state.CancelRequest{Reason: "r", Actor: "a", At: now()}, []state.AuditEntry{{At: now(), Note: "old"}}
		rec.Outbox.Messages = []state.OutboxMessage{{Message: s.message(rec, 0)}}
		for i := range rec.Steps {
			rec.Steps[i].Output = []byte(`"old"`)
		}
		rec = s.create(rec)
		ch := s.follow(rec)
		set(rec, ch)
		s.commit(rec, ch)
		s.stored(rec, name)
		s.commit(rec, s.follow(rec))
		s.stored(rec, name+", and then nothing new")
	}
}

// stepDone is the change of one step.
func (s *subject) stepDone(ch *state.Change, index int) []state.StepChange {
	return []state.StepChange{{Index: index, StepRecord: state.StepRecord{
		Name: [...]string{"first", "second", "third", "x"}[index], Status: state.StepDone, Attempts: 1, Output: []byte(`{"new":true}`), EndedAt: ch.UpdatedAt,
	}}}
}

func (s *subject) message(r *state.Record, n int) outbox.Message {
	return outbox.Message{
		ID: messageID(r, n), Topic: "topic", Key: "order", Type: "type", ContentType: "application/json",
		Body: fmt.Appendf(nil, `{"n":%d}`, n), Attributes: map[string]string{"n": fmt.Sprint(n)},
		Time: r.CreatedAt.Add(time.Duration(n) * time.Millisecond),
	}
}

// testTimes: to the millisecond, whatever the zone and the monotonic clock of what is given.
func testTimes(s *subject) {
	at := time.Now().In(time.FixedZone("far", 9*3600+30*60)).Truncate(time.Second).Add(123_456_789)
	rec := s.record("record")
	rec.CreatedAt, rec.UpdatedAt, rec.LeaseUntil, rec.NotBefore = at, at.Add(1), at.Add(2), at.Add(3)
	rec.Steps[0].StartedAt, rec.Steps[0].EndedAt = at, at.Add(4)
	rec.Steps[0].Error = &state.Failure{At: at.Add(5)}
	rec.Failure = &state.Failure{At: at.Add(6)}
	rec.Cancel = &state.CancelRequest{At: at.Add(7)}
	rec.Outbox = state.Outbox{Token: "t", ClaimedUntil: at.Add(-time.Hour), Messages: []state.OutboxMessage{{Message: s.message(rec, 0)}}}
	rec.Outbox.Messages[0].Time = at.Add(9)
	rec.Audit = []state.AuditEntry{{At: at.Add(8)}}
	rec = s.create(rec)
	rec.Round()
	s.stored(rec, "Create with times that are finer than a millisecond")
	ch := s.follow(rec)
	ch.UpdatedAt, ch.LeaseUntil, ch.NotBefore, ch.Failure = at.Add(time.Hour), at, at, &state.Failure{At: at}
	ch.Claim = &state.Claim{Token: "u", Until: at}
	ch.Messages = []outbox.Message{s.message(rec, 1)}
	ch.Messages[0].Time = at
	ch.Audit = []state.AuditEntry{{At: at}}
	s.commit(rec, ch)
	s.stored(rec, "Commit with times that are finer than a millisecond")
	require.Equal(s, 123, rec.UpdatedAt.Nanosecond()/1e6)
}

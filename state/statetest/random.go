package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// sequenceLength is how many calls a random sequence makes; each is followed by a Get.
const sequenceLength = 30

// testRandom makes random calls to the store and to a record in memory, and compares the two after each.
func testRandom(s *subject) {
	var records []*state.Record
	for i := range s.suite.sequences {
		s.part(fmt.Sprint(i), func(s *subject) {
			r := &random{subject: s, Rand: rand.New(rand.NewPCG(s.suite.seed, uint64(i)))}
			defer func() {
				if s.Failed() {
					s.Logf("this was statetest.Seed(%d), sequence %d; the calls were:\n%s", s.suite.seed, i, lines(r.calls))
				}
			}()
			r.start()
			for range sequenceLength {
				r.step()
			}
			records = append(records, r.rec)
		})
	}
	if s.suite.reopen != nil && s.store.Capabilities().Durable {
		s.store = s.suite.reopen(s.T, s.store)
		for _, rec := range records {
			s.stored(rec, "after the store was opened again")
		}
	}
}

// random is a random sequence of calls on one record.
type random struct {
	*subject
	*rand.Rand
	rec      *state.Record // what the store should hold
	messages int           // emitted so far
	calls    []string
}

func (r *random) start() {
	rec := r.record("record")
	rec.Input = r.json()
	if r.IntN(2) == 0 {
		rec.Pivot = rec.Plan[r.IntN(len(rec.Plan))]
	}
	r.rec = r.create(rec)
	r.stored(r.rec, "Create")
}

func (r *random) step() {
	r.Helper()
	name, do := "commit", r.randomCommit
	switch n := r.IntN(20); {
	case n < 1:
		name, do = "request cancel", r.requestCancel
	case n < 4:
		name, do = "sent", r.sent
	case n < 5:
		name, do = "park", r.park
	case n < 7:
		name, do = "unpark", r.unpark
	case n < 8:
		name, do = "stale", r.stale
	case n < 9:
		name, do = "illegal", r.illegal
	}
	r.calls = append(r.calls, fmt.Sprintf("%2d %s at %s revision %d", len(r.calls), name, r.rec.Status, r.rec.Revision))
	do()
	r.stored(r.rec, name)
}

// try makes the change to the store and to the record in memory; both must take it, or refuse it for the same reason.
func (r *random) try(ch *state.Change) {
	r.Helper()
	want := r.rec.Clone()
	expected := ch.Apply(want)
	err := r.store.Commit(r.Context(), ch)
	switch {
	case expected == nil:
		require.NoError(r, err, "Commit")
		r.rec = want
	case errors.Is(expected, state.ErrConflict):
		r.conflict(err, r.rec, "Commit")
	default:
		require.ErrorIs(r, err, state.ErrTransition, "Commit")
	}
}

func (r *random) stale() {
	ch := r.change(r.next())
	if r.IntN(2) == 0 {
		ch.IfRevision += int64(1 - 2*r.IntN(2))
	} else {
		ch.IfOwner += "x"
	}
	r.try(ch)
}

func (r *random) illegal() {
	all := state.Statuses()
	to := all[r.IntN(len(all))]
	if r.rec.Status.CanBecome(to) {
		to = "NONSENSE"
	}
	r.try(r.change(to))
}

func (r *random) randomCommit() { r.try(r.change(r.next())) }

// next is a status that the record may take; where there is none, the one it has.
func (r *random) next() state.Status {
	var may []state.Status
	for _, to := range state.Statuses() {
		if r.rec.Status.CanBecome(to) && (!to.Ended() || r.IntN(6) == 0) {
			may = append(may, to)
		}
	}
	if len(may) == 0 {
		return r.rec.Status
	}
	return may[r.IntN(len(may))]
}

// change is a random change of the record to that status.
func (r *random) change(to state.Status) *state.Change {
	rec := r.rec
	ch := &state.Change{
		Key: rec.Key, IfOwner: rec.Owner, IfRevision: rec.Revision, IfNoCancel: r.IntN(3) == 0, WriteID: r.fresh("write"), Status: to,
		Owner: r.some(r.fresh("owner")), Runs: rec.Runs + r.IntN(2), CurrentStep: r.some(rec.Plan[r.IntN(len(rec.Plan))]),
		LeaseUntil: r.time(), NotBefore: r.time(), UpdatedAt: now(), Failure: r.failure(), DropCancel: r.IntN(4) == 0,
	}
	if to == state.StatusCompensating || to == state.StatusFailed {
		ch.EndsAs = state.StatusFailed
	}
	if r.IntN(8) == 0 && len(rec.Plan) < 12 {
		name := fmt.Sprint("step ", len(rec.Plan))
		ch.Plan, ch.Pivot = append(append([]string{}, rec.Plan...), name), r.some(name)
		ch.Steps = append(ch.Steps, r.stepChange(len(rec.Plan), name))
	}
	for range r.IntN(3) {
		i := r.IntN(len(rec.Steps))
		ch.Steps = append(ch.Steps, r.stepChange(i, rec.Plan[i]))
	}
	if r.IntN(6) == 0 {
		ch.Response = r.json()
	}
	if r.IntN(3) == 0 {
		r.emit(ch)
	}
	if r.IntN(8) == 0 {
		ch.Audit = []state.AuditEntry{{At: now(), Actor: "a", Verb: "retry", Note: r.fresh("note")}, {At: now(), Actor: "b"}}
	}
	if to.Ended() && len(rec.Outbox.Messages)+len(ch.Messages) == 0 && r.IntN(2) == 0 {
		ch.ExpiresAt = rec.Expiry(now())
	}
	return ch
}

func (r *random) emit(ch *state.Change) {
	for range 1 + r.IntN(3) {
		m := r.message(r.rec, r.messages)
		m.Body = []byte(r.json())
		r.messages++
		ch.Messages = append(ch.Messages, m)
	}
	if r.IntN(2) == 0 {
		ch.Claim = &state.Claim{Token: r.fresh("token"), Until: now().Add(long)}
	}
}

func (r *random) stepChange(i int, name string) state.StepChange {
	all := state.StepStatuses()
	sc := state.StepChange{Index: i, StepRecord: state.StepRecord{
		Name: name, Status: all[r.IntN(len(all))], Attempts: r.IntN(4), Unknown: r.IntN(2) == 0, Error: r.failure(),
		UndoAttempts: r.IntN(3), UndoError: r.failure(), StartedAt: r.time(), EndedAt: r.time(),
	}}
	if r.IntN(2) == 0 {
		sc.Output = r.json()
	}
	return sc
}

func (r *random) requestCancel() {
	req := state.CancelRequest{Reason: r.fresh("reason"), Actor: "a", At: now()}
	store, expected := r.rec.CheckCancel()
	err := r.store.RequestCancel(r.Context(), r.rec.Key, req)
	if expected != nil {
		require.ErrorIs(r, err, expected, "RequestCancel")
		return
	}
	require.NoError(r, err, "RequestCancel")
	if store {
		r.rec.Cancel = &req
	}
}

// batch is the messages that are claimed, under the token that a commit has set, or a wrong one.
func (r *random) batch() outbox.Batch {
	b := outbox.Batch{RunKey: r.rec.Key, Token: r.rec.Outbox.Token, Messages: r.rec.Outbox.Clone().Sendable()}
	if r.IntN(5) == 0 {
		b.Token = "wrong"
	}
	return b
}

func (r *random) sent() {
	b := r.batch()
	gone := ids(b.Messages)[:r.IntN(len(b.Messages)+1)]
	r.relayed(r.rec.Outbox.Sent(b, gone), r.store.Sent(r.Context(), b, gone))
}

func (r *random) park() {
	b := r.batch()
	id := messageID(r.rec, r.IntN(r.messages+1))
	r.relayed(r.rec.Outbox.Park(b, id, "reason"), r.store.Park(r.Context(), b, id, "reason"))
}

func (r *random) unpark() {
	id := messageID(r.rec, r.IntN(r.messages+1))
	for _, m := range r.rec.Outbox.Messages {
		if m.Parked != "" {
			id = m.ID
		}
	}
	resend, note := r.IntN(2) == 0, r.fresh("note")
	expected := r.rec.Outbox.Unpark(id, resend)
	err := r.store.Unpark(r.Context(), id, resend, note)
	if expected == nil && err == nil {
		line := state.UnparkAudit("unknown", id, resend, note, now())
		if got := r.get(r.rec.Key).Audit; len(got) > 0 {
			require.WithinDuration(r, line.At, got[len(got)-1].At, patience)
			line.At = got[len(got)-1].At
		}
		r.rec.Audit = append(r.rec.Audit, line)
	}
	r.relayed(expected, err)
}

// relayed compares the outcomes of a relay's call, and takes over the expiry that the store gave by its own clock.
func (r *random) relayed(expected, err error) {
	r.Helper()
	if expected != nil {
		require.ErrorIs(r, err, errors.Unwrap(expected))
		return
	}
	require.NoError(r, err)
	if r.rec.Settle(now()) {
		got := r.get(r.rec.Key).ExpiresAt
		require.WithinDuration(r, r.rec.ExpiresAt, got, patience)
		r.rec.ExpiresAt = got
	}
}

func (r *random) json() json.RawMessage {
	if r.IntN(20) == 0 {
		return r.payload(r.IntN(30_000) + 2)
	}
	return json.RawMessage(hostile[r.IntN(len(hostile))])
}

func (r *random) some(text string) string {
	if r.IntN(3) == 0 {
		return ""
	}
	return text
}

func (r *random) time() time.Time {
	if r.IntN(3) == 0 {
		return time.Time{}
	}
	return now().Add(time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour)
}

func (r *random) failure() *state.Failure {
	if r.IntN(2) == 0 {
		return nil
	}
	f := &state.Failure{Step: r.some("first"), Code: r.some("code"), Message: r.some(texts[r.IntN(len(texts))]), At: now()}
	for range r.IntN(3) {
		f.NotUndone = append(f.NotUndone, "second")
	}
	return f
}

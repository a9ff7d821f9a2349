package sqlite

import (
	"context"
	"slices"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// A change that is made often, to a run that is known, is one statement whose WHERE is the fence. When it changes nothing,
// and for any other change, the record is read and the change applied to it as package state defines it, which also tells
// who was in the way.
//
// The statement to use is a sum of these.
const (
	fromCompensating = 1 << iota // the run goes backwards; otherwise it is IN_PROGRESS
	orCancelled                  // a cancel request doesn't matter
	moves                        // the status changes, and with it whatever else may change
	statements
)

// byReading stands for none of the statements.
const byReading = -1

var commitStatements = [statements]string{
	commitSQL(0), commitSQL(1), commitSQL(2), commitSQL(3), commitSQL(4), commitSQL(5), commitSQL(6), commitSQL(7),
}

// commitSQL sets no more than what changes: a column in SET costs its indexes an update, whether it changes or not.
func commitSQL(how int) string {
	set := "revision = ?4 + 1, head = ?5, steps = steps || ?6"
	where := "id = ?1 AND idempotency_key = ?2 AND owner = ?3 AND revision = ?4"
	from := state.StatusInProgress
	if how&fromCompensating != 0 {
		from = state.StatusCompensating
	}
	where += " AND status = '" + string(from) + "'"
	if how&orCancelled == 0 {
		where += " AND cancel IS NULL"
	}
	if how&moves != 0 {
		set += ", status = ?7, owner = ?8, expiration = ?9, response_data = CASE WHEN ?10 THEN ?11 ELSE response_data END"
		where += " AND (?9 IS NULL OR NOT EXISTS (SELECT 1 FROM run_outbox o WHERE o.id = ?1 AND o.messages <> ''))"
	}
	return "UPDATE run_record SET " + set + " WHERE " + where
}

// usuallyFrom is the status from which a change to each status most often comes.
var usuallyFrom = map[state.Status]state.Status{
	state.StatusInProgress: state.StatusInProgress, state.StatusCompensating: state.StatusCompensating,
	state.StatusCompleted: state.StatusInProgress, state.StatusInterrupted: state.StatusInProgress,
	state.StatusFailed: state.StatusCompensating, state.StatusReversed: state.StatusCompensating, state.StatusBlocked: state.StatusInProgress,
}

// compactEvery is how many writes a log may grow by before it is written anew, if the run is not taken up sooner.
const compactEvery = 64

// commitTask is a Commit on its way through the committer.
type commitTask struct {
	job
	enc   encoded
	ch    *state.Change
	how   int
	known known // before the write
	after known // after it
}

var commitTasks = sync.Pool{New: func() any {
	t := &commitTask{}
	t.task, t.done = t, make(chan error, 1)
	return t
}}

// Commit makes the change; see [state.Store].
func (s *Store) Commit(ctx context.Context, ch *state.Change) error {
	t := commitTasks.Get().(*commitTask)
	t.prepare(ch, s)
	left, err := s.writer.do(ctx, &t.job)
	if left {
		return s.failed("Commit", ch.Key, err)
	}
	k := t.after
	t.ch, t.known, t.after = nil, known{}, known{}
	t.enc.release()
	commitTasks.Put(t)
	if err != nil {
		return s.failed("Commit", ch.Key, err)
	}
	s.memory.keep(ch.Key, k)
	return nil
}

// prepare chooses the statement and encodes what goes into it.
func (t *commitTask) prepare(ch *state.Change, s *Store) {
	t.ch, t.how = ch, byReading
	t.size = ch.Growth()
	t.enc.reset()
	k, ok := s.memory.at(ch.Key, ch.IfOwner, ch.IfRevision)
	if !ok || s.maxRecord > 0 && k.size+t.size > s.maxRecord || !plain(ch, k.steps) {
		return
	}
	t.known = k
	t.how = statementFor(ch)
	if t.how == byReading {
		return
	}
	e := &t.enc
	e.header = e.part(true, func() {
		e.head(header{
			writeID: ch.WriteID, currentStep: ch.CurrentStep, runs: ch.Runs, leaseUntil: ch.LeaseUntil, updatedAt: ch.UpdatedAt,
			notBefore: ch.NotBefore, endsAs: ch.EndsAs, failure: ch.Failure,
		})
	})
	e.log = e.part(true, func() {
		for i := range ch.Steps {
			e.step(ch.Steps[i].Index, &ch.Steps[i].StepRecord, k.plan)
		}
	})
	e.sends = e.part(true, func() {
		for i := range ch.Messages {
			e.message(&ch.Messages[i], "")
		}
	})
	e.response = e.whole(partResponse, ch.Response)
}

// plain tells whether the change touches nothing beyond run_record, but for messages and long payloads.
func plain(ch *state.Change, steps int) bool {
	if ch.Plan != nil || ch.DropCancel || ch.Claim != nil || len(ch.Audit) > 0 || ch.IfRevision%compactEvery == compactEvery-1 {
		return false
	}
	for i := range ch.Steps {
		if ch.Steps[i].Index < 0 || ch.Steps[i].Index >= steps {
			return false
		}
	}
	return true
}

func statementFor(ch *state.Change) int {
	from, ok := usuallyFrom[ch.Status]
	if !ok || !ch.ExpiresAt.IsZero() && (!ch.Status.Ended() || len(ch.Messages) > 0) {
		return byReading // a defect, which reading tells apart
	}
	how := 0
	if from == state.StatusCompensating {
		how |= fromCompensating
	}
	if !ch.IfNoCancel {
		how |= orCancelled
	}
	switch {
	case from != ch.Status:
		how |= moves
	case ch.Owner != ch.IfOwner || ch.Response != nil:
		return byReading // a take-up, which compacts, or something that doesn't happen
	}
	return how
}

func (t *commitTask) apply(tx *tx) (answer, err error) {
	if t.how == byReading {
		return t.read(tx)
	}
	s := tx.commits[t.how]
	t.bind(s)
	if err := run(s); err != nil {
		return nil, err
	}
	if tx.c.Changes() == 0 {
		return t.read(tx)
	}
	return nil, t.addRows(tx)
}

func (t *commitTask) bind(s *sqlite.Stmt) {
	ch, e := t.ch, &t.enc
	b := binder{s: s}
	b.int(t.known.id)
	b.text(ch.Key)
	b.text(ch.IfOwner)
	b.int(ch.IfRevision)
	e.bind(&b, e.header)
	e.bind(&b, e.log)
	if t.how&moves != 0 {
		b.text(string(ch.Status))
		b.text(ch.Owner)
		b.second(ch.ExpiresAt)
		b.flag(ch.Response != nil)
		b.bytes(e.response)
	}
}

// addRows writes what a change brings beyond run_record: messages, long payloads, and the wish for an expiry.
func (t *commitTask) addRows(tx *tx) error {
	ch, id := t.ch, t.known.id
	if len(t.enc.large) > 0 {
		if err := tx.put(id, t.enc.large); err != nil {
			return err
		}
		if err := tx.exec(hasPayloads, func(b *binder) { b.int(id) }); err != nil {
			return err
		}
	}
	if len(ch.Messages) > 0 {
		err := tx.exec(appendOutbox, func(b *binder) {
			b.int(id)
			t.enc.bind(b, t.enc.sends)
		})
		if err != nil {
			return err
		}
	}
	if unsettled(ch.Status, ch.ExpiresAt.IsZero(), t.known.retained) {
		if err := tx.exec(settleLater, func(b *binder) { b.int(id) }); err != nil {
			return err
		}
	}
	t.after = t.known
	t.after.owner, t.after.revision, t.after.size = ch.Owner, ch.IfRevision+1, t.known.size+t.size
	return nil
}

// read reads the record and makes the change as state defines it.
func (t *commitTask) read(tx *tx) (answer, err error) {
	r, answer, err := tx.load(t.ch.Key)
	if answer != nil || err != nil {
		return answer, err
	}
	if r == nil {
		return &state.ConflictError{Key: t.ch.Key}, nil
	}
	rec := r.rec
	grows := t.ch.Payload(rec) > 0
	if answer := t.ch.Apply(rec); answer != nil {
		return answer, nil
	}
	size := rec.Size()
	if tx.maxRecord > 0 && size > tx.maxRecord && grows {
		return tooLarge(t.ch.Key, size, tx.maxRecord), nil
	}
	t.after = known{
		id: r.id, owner: rec.Owner, revision: rec.Revision, size: size, steps: len(rec.Steps), plan: slices.Clone(rec.Plan), retained: rec.Retention > 0,
	}
	return nil, tx.rewrite(r)
}

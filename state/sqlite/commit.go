package sqlite

import (
	"context"
	"math"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// A change that is made often is one statement whose WHERE is the fence; when it changes nothing, or for any other change,
// the record is read and the change applied to it, which also tells who was in the way.
const (
	commitStays = 0 // the status and the owner stay as they are: a step recorded, a lease renewed
	commitMoves = 1 // the status, and whatever else there is, may change
	// commitSends is added when there are messages.
	commitSends = 2
	// commitReads: none of them will do.
	commitReads = 4
)

var commitStatements = [4]string{
	commitStays:               commitSQL(false, false),
	commitMoves:               commitSQL(true, false),
	commitStays + commitSends: commitSQL(false, true),
	commitMoves + commitSends: commitSQL(true, true),
}

// commitSQL leaves out what does not change, so that no index is touched: a column in SET costs its indexes an update,
// whether it changes or not. What the general path checks through Change.Check is here in the WHERE.
func commitSQL(moves, sends bool) string {
	set := []string{
		"revision = ?3 + 1", "write_id = ?7", "run = ?8", "current_step = ?9", "in_progress_expiration = ?10", "not_before = ?11",
		"updated_at = ?12", "ends_as = ?13", "failure = ?14", "steps = steps || ?15", "size = size + ?16", "payloads = payloads | ?17",
	}
	where := "idempotency_key = ?1 AND owner = ?2 AND revision = ?3 AND status = ?4 AND (cancel IS NULL OR ?5 = 0)" +
		" AND step_count > ?6 AND size + ?16 <= ?18"
	relay := ""
	if moves {
		set = append(set, "status = ?19", "owner = ?20", "expiration = ?21", "response_data = CASE WHEN ?26 THEN ?22 ELSE response_data END",
			"outbox_token = coalesce(?23, outbox_token)", "outbox_until = CASE WHEN ?23 IS NULL THEN outbox_until ELSE ?24 END")
		where += " AND (?21 IS NULL OR outbox = '') AND (?23 IS NULL OR outbox_token = '' OR outbox_until IS NULL OR outbox_until <= ?12)"
		relay = "CASE WHEN outbox <> '' THEN relay WHEN ?25 AND ?21 IS NULL AND retention > 0 THEN '" + relaySettle + "' END"
	}
	if sends {
		set = append(set, "outbox = outbox || ?27")
		relay = "coalesce(relay, '" + relaySend + "')"
	}
	if relay != "" {
		set = append(set, "relay = "+relay)
	}
	return "UPDATE run_record SET " + strings.Join(set, ", ") + " WHERE " + where
}

// comesFrom is the status from which a change to each status most often comes.
var comesFrom = map[state.Status]state.Status{
	state.StatusInProgress: state.StatusInProgress, state.StatusCompensating: state.StatusCompensating,
	state.StatusCompleted: state.StatusInProgress, state.StatusInterrupted: state.StatusInProgress,
	state.StatusFailed: state.StatusCompensating, state.StatusReversed: state.StatusCompensating, state.StatusBlocked: state.StatusInProgress,
}

// compactEvery is how many writes a log may grow by before it is written anew, if the run is not taken up sooner.
const compactEvery = 64

// commitTask is a Commit on its way through the committer.
type commitTask struct {
	job
	enc     encoded
	ch      *state.Change
	how     int
	growth  int
	maxStep int
}

var commitTasks = sync.Pool{New: func() any {
	t := &commitTask{}
	t.task, t.done = t, make(chan error, 1)
	return t
}}

// Commit makes the change; see [state.Store].
func (s *Store) Commit(ctx context.Context, ch *state.Change) error {
	t := commitTasks.Get().(*commitTask)
	t.state.Store(jobWaits)
	t.prepare(ch)
	left, err := s.queue.do(ctx, &t.job)
	if !left {
		t.ch, t.answer = nil, nil
		t.enc.release()
		commitTasks.Put(t)
	}
	if err != nil {
		return s.failed("Commit", ch.Key, err)
	}
	return nil
}

func (t *commitTask) prepare(ch *state.Change) {
	t.ch, t.growth = ch, ch.Growth()
	t.size = t.growth
	if t.how = howTo(ch); t.how == commitReads {
		return
	}
	e := &t.enc
	e.reset()
	t.maxStep = -1
	e.steps = e.part(true, func() {
		for i := range ch.Steps {
			e.step(ch.Steps[i].Index, &ch.Steps[i].StepRecord)
			t.maxStep = max(t.maxStep, ch.Steps[i].Index)
		}
	})
	e.failure = e.part(ch.Failure != nil, func() { e.encoder.failure(ch.Failure) })
	e.outbox = e.part(true, func() {
		for i := range ch.Messages {
			e.message(&ch.Messages[i], "")
		}
	})
	e.response = e.whole(partResponse, ch.Response)
}

// howTo chooses the statement.
func howTo(ch *state.Change) int {
	if ch.Plan != nil || ch.DropCancel || len(ch.Audit) > 0 || ch.IfRevision%compactEvery == compactEvery-1 {
		return commitReads
	}
	for i := range ch.Steps {
		if ch.Steps[i].Index < 0 {
			return commitReads
		}
	}
	from, ok := comesFrom[ch.Status]
	if !ok {
		return commitReads
	}
	sends := 0
	if len(ch.Messages) > 0 {
		sends = commitSends
	}
	switch {
	case from == ch.Status && ch.Owner == ch.IfOwner && ch.ExpiresAt.IsZero() && ch.Response == nil && ch.Claim == nil:
		return commitStays + sends
	case from == ch.Status, // a take-up, which compacts
		!ch.ExpiresAt.IsZero() && (!ch.Status.Ended() || sends > 0): // a defect, to be told apart
		return commitReads
	}
	return commitMoves + sends
}

func (t *commitTask) apply(tx *tx) (answer, err error) {
	if t.how != commitReads {
		s := tx.commits[t.how]
		t.bind(s, tx.maxRecord)
		if err := run(s); err != nil {
			return nil, err
		}
		if tx.c.Changes() > 0 {
			return nil, t.put(tx)
		}
	}
	return t.applyRead(tx)
}

func (t *commitTask) bind(s *sqlite.Stmt, maxRecord int) {
	ch, e := t.ch, &t.enc
	b := binder{s: s}
	b.text(ch.Key)
	b.text(ch.IfOwner)
	b.int(ch.IfRevision)
	b.text(string(comesFrom[ch.Status]))
	b.flag(ch.IfNoCancel)
	b.int(int64(t.maxStep))
	b.text(ch.WriteID)
	b.int(int64(ch.Runs))
	b.text(ch.CurrentStep)
	b.time(ch.LeaseUntil)
	b.time(ch.NotBefore)
	b.time(ch.UpdatedAt)
	b.text(string(ch.EndsAs))
	e.bind(&b, e.failure)
	e.bind(&b, e.steps)
	b.int(int64(t.growth))
	b.flag(len(e.large) > 0)
	if maxRecord <= 0 {
		maxRecord = math.MaxInt
	}
	b.int(int64(maxRecord))
	if t.how&commitMoves != 0 {
		b.text(string(ch.Status))
		b.text(ch.Owner)
		b.second(ch.ExpiresAt)
		b.bytes(e.response)
		b.claim(ch.Claim)
		b.flag(ch.Status.Ended())
		b.flag(ch.Response != nil)
	}
	if t.how&commitSends != 0 {
		b.n = 26
		e.bind(&b, e.outbox)
	}
}

// claim binds a claim's token and end, or NULL twice.
func (b *binder) claim(c *state.Claim) {
	if c == nil {
		b.n += 2
		return
	}
	b.text(c.Token)
	b.time(c.Until)
}

func (t *commitTask) put(tx *tx) error {
	if len(t.enc.large) == 0 {
		return nil
	}
	id, err := tx.id(t.ch.Key)
	if err != nil {
		return err
	}
	return tx.put(id, t.enc.large)
}

// applyRead reads the record and makes the change as state defines it.
func (t *commitTask) applyRead(tx *tx) (answer, err error) {
	r, answer, err := tx.load(t.ch.Key)
	if answer != nil || err != nil {
		return answer, err
	}
	if r == nil {
		return &state.ConflictError{Key: t.ch.Key}, nil
	}
	payload := t.ch.Payload(r.rec)
	if answer := t.ch.Apply(r.rec); answer != nil {
		return answer, nil
	}
	if size := r.rec.Size(); tx.maxRecord > 0 && size > tx.maxRecord && payload > 0 {
		return tooLarge(t.ch.Key, size, tx.maxRecord), nil
	}
	return nil, tx.rewrite(r)
}

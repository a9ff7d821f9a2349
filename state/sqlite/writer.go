package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

const (
	// gatherFor is the longest that the committer waits in all for the writers of its last round before it commits.
	gatherFor = 300 * time.Microsecond
	// silence is how long it waits for the next of them: writers that are at work on something else don't come for long,
	// and the wait costs a processor.
	silence = 50 * time.Microsecond
)

// failpoints are where tests make a commit fail; all nil otherwise.
type failpoints struct {
	beforeCommit func() error // its error stands for a COMMIT that failed
	afterCommit  func() error // its error stands for a COMMIT whose answer was lost
}

// writer makes the writes. A write that comes while nothing else is going on is made at once, on its caller's goroutine:
// with one writer at a time nobody is woken and nobody waited for. All others queue for the committer, a goroutine of the
// writer's that puts what is queued into one transaction with one fsync, and gives each job its own answer.
type writer struct {
	path    string
	queue   *queue
	clock   clock.Clock
	points  failpoints
	timeout time.Duration
	ended   chan struct{} // closed when the committer has ended

	mu       sync.Mutex // held by who writes; for good once the file is closed
	tx       *tx
	turn     turn
	purger   *purger
	expected int   // how many writers the committer's last round had
	batch    batch // of the round at hand
}

// do makes a write. left tells that the job is still in use, though its caller need not wait any longer.
func (w *writer) do(ctx context.Context, j *job) (left bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	j.answer = nil
	j.state.Store(jobWaits)
	if w.atOnce(j) {
		return false, j.answer
	}
	return w.queue.do(ctx, j)
}

// atOnce makes a write if there is nothing to wait for, and nobody to share a commit with.
func (w *writer) atOnce(j *job) bool {
	if w.queue.length.Load() > 0 || !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	if w.expected > 1 || w.queue.isClosed() || w.purger.due() {
		return false
	}
	held, free := w.turn.try()
	if !free {
		return false
	}
	if held {
		defer w.turn.release()
	}
	if w.begin() != nil {
		return false
	}
	w.finish(j)
	return true
}

// loop is the committer.
func (w *writer) loop() {
	defer close(w.ended)
	for w.queue.wait() {
		w.mu.Lock()
		w.serve()
		// The writers of a round are those who are answered and those who have come meanwhile.
		w.expected = len(w.batch.jobs) + int(w.queue.length.Load())
		w.mu.Unlock()
		for _, j := range w.batch.jobs {
			j.done <- j.answer
		}
		w.batch.reset()
	}
}

// drain waits for the writes in hand. There are none afterwards.
func (w *writer) drain() {
	w.queue.close()
	<-w.ended
	w.mu.Lock()
}

func (w *writer) close() error {
	w.turn.close()
	return w.tx.c.Close()
}

// serve makes the writes that are queued, and those that come meanwhile, into w.batch, and leaves their answers in them.
func (w *writer) serve() {
	deadline := time.Now().Add(w.timeout)
	if w.turn.acquire(nil) {
		defer w.turn.release()
	}
	if err := w.beginPatiently(deadline); err != nil {
		w.take()
		w.refuse(w.batch.jobs, err)
		return
	}
	if w.together() {
		return
	}
	// A statement failed, so nothing was written and nobody has an answer.
	for _, j := range w.batch.jobs {
		w.alone(j)
	}
}

// take adds what is queued to the batch, and tells whether there was something.
func (w *writer) take() bool {
	n := len(w.batch.jobs)
	w.queue.take(&w.batch)
	return len(w.batch.jobs) > n
}

// together puts the batch into the transaction that has begun. false: a statement failed, and it was rolled back.
//
// Writes are applied as they come: while the committer is at the first of them, the writers of the last round, who have
// just been answered, get the next ones ready. It waits for them a little before it commits, so that they share the commit
// instead of falling into two halves that take turns. One writer is never waited for.
func (w *writer) together() bool {
	applied := 0
	for pause := (pause{}); ; {
		if !w.take() {
			if applied >= w.expected || pause.over() {
				break
			}
			runtime.Gosched()
			continue
		}
		for _, j := range w.batch.jobs[applied:] {
			if !w.apply(j) {
				return false
			}
		}
		applied = len(w.batch.jobs)
		pause.interrupt()
	}
	if w.purger.due() && !w.apply(w.purger.job()) {
		return false
	}
	w.commit(w.batch.jobs)
	return true
}

func (w *writer) apply(j *job) bool {
	if !j.begin() {
		return true
	}
	var err error
	if j.answer, err = j.task.apply(w.tx); err != nil {
		w.rollback()
		return false
	}
	return true
}

// pause is the wait for writes that may come: over when none has come for a while, or when it has lasted in all.
type pause struct {
	since  time.Time // zero while there is something to do
	before time.Duration
}

func (p *pause) over() bool {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
		return false
	}
	waited := now.Sub(p.since)
	return waited >= silence || p.before+waited >= gatherFor
}

// interrupt ends a wait because something has come.
func (p *pause) interrupt() {
	if !p.since.IsZero() {
		p.before += time.Since(p.since)
		p.since = time.Time{}
	}
}

// alone gives a job a transaction of its own.
func (w *writer) alone(j *job) {
	if err := w.beginPatiently(time.Now().Add(w.timeout)); err != nil {
		w.refuse([]*job{j}, err)
		return
	}
	if !j.begin() {
		w.rollback()
		return
	}
	w.finish(j)
}

// finish applies a job and ends the transaction, which has nothing else in it.
func (w *writer) finish(j *job) {
	answer, err := j.task.apply(w.tx)
	if err != nil {
		w.rollback()
		j.answer = explain(w.path, "a write", err)
		return
	}
	j.answer = answer
	one := [1]*job{j}
	w.commit(one[:])
}

// begin tells whether the job is still wanted, and from then on it can't be withdrawn.
func (j *job) begin() bool {
	return j.state.CompareAndSwap(jobWaits, jobBegun) || j.state.Load() == jobBegun
}

// begin fails when another process holds the file's lock.
func (w *writer) begin() error {
	if !w.tx.c.AutocommitEnabled() {
		w.rollback()
	}
	w.tx.now = w.clock.Now()
	return run(w.tx.begin)
}

// beginPatiently waits for the lock. Nothing else that a writer does has to wait for one.
func (w *writer) beginPatiently(deadline time.Time) error {
	err := w.begin()
	if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy {
		return err
	}
	w.tx.c.waitUntil(deadline)
	defer w.tx.c.SetBusyTimeout(0)
	return w.begin()
}

// refuse answers jobs that were not begun.
func (w *writer) refuse(batch []*job, err error) {
	err = explain(w.path, "beginning a write", err)
	for _, j := range batch {
		j.answer = err
	}
}

// commit ends the transaction. A COMMIT that fails leaves open whether it was made: what it has written to the log may be
// found there after a crash. That goes for refusals too, which rest on what was written before them.
func (w *writer) commit(batch []*job) {
	for _, j := range batch {
		j.state.CompareAndSwap(jobBegun, jobCommitting)
	}
	err := w.points.at(w.points.beforeCommit)
	if err == nil {
		err = run(w.tx.commit)
	}
	if err == nil {
		err = w.points.at(w.points.afterCommit)
	}
	if err == nil {
		return
	}
	if !w.tx.c.AutocommitEnabled() {
		w.rollback()
	}
	err = fmt.Errorf("%w: %w", ErrInDoubt, explain(w.path, "COMMIT", err))
	for _, j := range batch {
		j.answer = err
	}
}

func (p failpoints) at(point func() error) error {
	if point == nil {
		return nil
	}
	return point()
}

// rollback can fail where SQLite has rolled back by itself, which comes to the same.
func (w *writer) rollback() { _ = run(w.tx.rollback) }

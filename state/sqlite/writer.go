package sqlite

import (
	"fmt"
	"runtime"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// gatherFor is the longest that the committer waits for the writers of its last round before it begins a transaction.
const gatherFor = 300 * time.Microsecond

// failpoints are where tests make a commit fail; all nil otherwise.
type failpoints struct {
	beforeCommit func() error // its error stands for a COMMIT that failed
	afterCommit  func() error // its error stands for a COMMIT whose answer was lost
}

// writer is the one goroutine that writes. It puts what is queued into one transaction with one fsync, and gives each
// job its own answer.
type writer struct {
	path   string
	tx     *tx
	queue  *queue
	turn   turn
	clock  clock.Clock
	points failpoints
	purger *purger
	ended  chan struct{}
}

func (w *writer) loop() {
	defer close(w.ended)
	var batch []*job
	expected := 0
	for w.queue.wait() {
		w.gather(expected)
		batch = w.queue.take(batch[:0])
		w.serve(batch)
		// The writers of a round are those who were answered and those who have come meanwhile.
		expected = len(batch) + int(w.queue.length.Load())
		for _, j := range batch {
			j.done <- j.answer
		}
		clear(batch)
	}
}

// gather lets the writers of the last round catch up, so that they share a commit instead of falling into two halves that
// take turns. One writer is never waited for.
func (w *writer) gather(expected int) {
	if int(w.queue.length.Load()) >= expected {
		return
	}
	for start := time.Now(); int(w.queue.length.Load()) < expected && time.Since(start) < gatherFor; {
		runtime.Gosched()
	}
}

func (w *writer) serve(batch []*job) {
	if w.turn.acquire() {
		defer w.turn.release()
	}
	batch = w.purger.join(batch)
	if !w.together(batch) {
		for _, j := range batch {
			w.alone(j)
		}
	}
}

// together puts the jobs into one transaction. false: a statement failed, nothing was written, and nobody has an answer.
func (w *writer) together(batch []*job) bool {
	if err := w.begin(); err != nil {
		w.refuse(batch, err)
		return true
	}
	for _, j := range batch {
		if j.begin() {
			var err error
			if j.answer, err = j.task.apply(w.tx); err != nil {
				w.rollback()
				return false
			}
		}
	}
	w.commit(batch)
	return true
}

// alone gives a job a transaction of its own.
func (w *writer) alone(j *job) {
	one := []*job{j}
	if err := w.begin(); err != nil {
		w.refuse(one, err)
		return
	}
	if !j.begin() {
		w.rollback()
		return
	}
	answer, err := j.task.apply(w.tx)
	if err != nil {
		w.rollback()
		j.answer = explain(w.path, "a write", err)
		return
	}
	j.answer = answer
	w.commit(one)
}

// begin tells whether the job is still wanted, and from then on it can't be withdrawn.
func (j *job) begin() bool {
	return j.state.CompareAndSwap(jobWaits, jobBegun) || j.state.Load() == jobBegun
}

func (w *writer) begin() error {
	if !w.tx.c.AutocommitEnabled() {
		w.rollback()
	}
	w.tx.now = w.clock.Now()
	return run(w.tx.begin)
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

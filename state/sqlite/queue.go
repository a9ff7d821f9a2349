package sqlite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// task is one write. apply runs on the committer, inside the transaction that the task shares with others. answer is what
// the caller is told if that transaction commits; err is SQLite's trouble, after which the transaction is rolled back
// and the task applied again, alone.
type task interface {
	apply(tx *tx) (answer, err error)
}

// taskFunc is a function as a task.
type taskFunc func(tx *tx) (answer, err error)

func (f taskFunc) apply(tx *tx) (answer, err error) { return f(tx) }

// The states of a job. A job that waits can be withdrawn; one that has begun uses what its caller passed in, who
// therefore waits; one that is being committed can be left to itself.
const (
	jobWaits int32 = iota
	jobBegun
	jobCommitting
	jobLeft // by its caller
)

// job is a task on its way through the committer.
type job struct {
	task   task
	size   int // about how many bytes it writes
	state  atomic.Int32
	answer error      // set by the committer, read by the caller after done
	done   chan error // gets one answer; buffered, so that the committer never waits for a caller
}

// queue holds the jobs that wait for the committer.
type queue struct {
	mu     sync.Mutex
	jobs   []*job
	closed bool
	length atomic.Int64  // of jobs, for a look without the lock
	wake   chan struct{} // has room for one: there are jobs, or the queue was closed
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// add fails with ErrClosed once close was called.
func (q *queue) add(j *job) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.jobs = append(q.jobs, j)
	n := len(q.jobs)
	q.length.Store(int64(n))
	q.mu.Unlock()
	if n == 1 {
		q.signal()
	}
	return nil
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// wait blocks until there are jobs; false: there are none and never will be.
func (q *queue) wait() bool {
	for {
		q.mu.Lock()
		n, closed := len(q.jobs), q.closed
		q.mu.Unlock()
		if n > 0 || closed {
			return n > 0
		}
		<-q.wake
	}
}

// take moves what is queued to the batch, in order, as long as that comes to no more than maxBatch jobs and, unless it is a
// single one, maxBatchBytes.
func (q *queue) take(b *batch) {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.jobs) && b.room(q.jobs[n]) {
		b.jobs = append(b.jobs, q.jobs[n])
		b.size += q.jobs[n].size
		n++
	}
	left := copy(q.jobs, q.jobs[n:])
	clear(q.jobs[left:])
	q.jobs = q.jobs[:left]
	q.length.Store(int64(left))
}

// batch is the jobs that share a transaction.
type batch struct {
	jobs []*job
	size int
}

const (
	maxBatch      = 1024
	maxBatchBytes = 8 << 20
)

func (b *batch) room(j *job) bool {
	return len(b.jobs) == 0 || len(b.jobs) < maxBatch && b.size+j.size <= maxBatchBytes
}

func (b *batch) reset() {
	clear(b.jobs)
	b.jobs, b.size = b.jobs[:0], 0
}

// grace is how long a caller whose context has ended waits for the answer to a write that has begun.
const grace = time.Second

// do has the committer run the job and returns its answer. When ctx ends while the job waits, the job is withdrawn; when
// it has begun, its answer is waited for a while and then is in doubt. left tells that the job is still in use.
func (q *queue) do(ctx context.Context, j *job) (left bool, err error) {
	if err := q.add(j); err != nil {
		return false, err
	}
	select {
	case err = <-j.done:
		return false, err
	case <-ctx.Done():
	}
	if j.state.CompareAndSwap(jobWaits, jobLeft) {
		return true, fmt.Errorf("sqlite: nothing was written: %w", context.Cause(ctx))
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case err = <-j.done:
			return false, err
		case <-timer.C:
			if j.state.CompareAndSwap(jobCommitting, jobLeft) {
				return true, fmt.Errorf("sqlite: %w: the write is being committed: %w", ErrInDoubt, context.Cause(ctx))
			}
			timer.Reset(grace)
		}
	}
}

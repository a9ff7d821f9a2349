package saga

import (
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// worker runs the calls of one run, one after the other, in a goroutine beside the one that drives the run. It keeps one
// goroutine for all of them, which comes from the engine's crew and goes back there: a new one for each call would have
// to grow its stack each time. A call that ends its goroutine, or that is no longer waited for, costs it that one.
type worker struct {
	crew  *crew
	calls chan *attempt
	last  *attempt
	busy  bool // with a call whose answer has not come
}

// attempt is where the next call answers.
func (w *worker) attempt() *attempt {
	if w.last == nil {
		w.last = &attempt{answer: make(chan drive.Result, 1)}
	}
	return w.last
}

// do has the call made. The one before must have answered, or have been left.
func (w *worker) do(a *attempt) {
	if w.calls == nil {
		w.calls = w.crew.take()
	}
	w.busy = true
	w.calls <- a
}

// answered: the last call is over.
func (w *worker) answered() { w.busy = false }

// leave gives the goroutine up to the call that it is at.
func (w *worker) leave() {
	if w.calls != nil {
		close(w.calls)
		w.calls, w.last, w.busy = nil, nil, false
	}
}

// rest gives the goroutine back, unless it is at a call that nobody waits for any more, as when a panic goes by.
func (w *worker) rest() {
	if w.busy {
		w.leave()
	}
	if w.calls != nil {
		w.crew.give(w.calls)
		w.calls = nil
	}
}

// crew is an engine's goroutines for calls: those that are idle, for a short while.
type crew struct {
	mu    sync.Mutex
	idle  []chan *attempt
	spare int // the fewest that were idle since the last look
	timer *time.Timer
}

// idleFor is between once and twice how long a goroutine may be idle before it ends.
const idleFor = 10 * time.Millisecond

func (c *crew) take() chan *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle) - 1
	if n < 0 {
		calls := make(chan *attempt, 1)
		go work(calls)
		return calls
	}
	calls := c.idle[n]
	c.idle = c.idle[:n]
	c.spare = min(c.spare, n)
	return calls
}

func (c *crew) give(calls chan *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, calls)
	if c.timer == nil {
		c.timer = time.AfterFunc(idleFor, c.look)
	}
}

// look ends the goroutines that nobody needed since the last look.
func (c *crew) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, calls := range c.idle[:c.spare] {
		close(calls)
	}
	c.idle = append(c.idle[:0], c.idle[c.spare:]...)
	c.spare = len(c.idle)
	if c.spare == 0 {
		c.timer = nil
		return
	}
	c.timer.Reset(idleFor)
}

func work(calls <-chan *attempt) {
	exited := true
	defer func() {
		if exited { // by runtime.Goexit in a call
			go work(calls)
		}
	}()
	for a := range calls {
		a.run()
	}
	exited = false
}

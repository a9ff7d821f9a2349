package sqlite

import "time"

// The turn is a lock that the processes which write to one file take in turns, around each batch: SQLite's own lock is
// polled for with growing pauses, so that of two busy processes one starves for seconds. It is for fairness alone:
// SQLite's lock is what keeps writers apart, so a process that can't have the turn in time goes on without it, and where
// there is no such lock there is none to take.
type turn interface {
	// try doesn't wait. free: nobody else has the turn. held: this process has it now.
	try() (held, free bool)
	// acquire waits until giveUp is closed, which may be nil, at the longest, and tells whether this process has the turn
	// now. What is held must be released.
	acquire(giveUp <-chan struct{}) bool
	release()
	close()
}

// turnTimeout is how much of the busy timeout is spent on the turn: half of it, so that the other half is left for SQLite's
// lock when a process was stopped in its turn. With none left, the first who goes on without the turn would fail because of
// another who does so too, be its transaction ever so short.
func turnTimeout(busy time.Duration) time.Duration { return busy / 2 }

type noTurn struct{}

func (noTurn) try() (held, free bool)       { return false, true }
func (noTurn) acquire(<-chan struct{}) bool { return false }
func (noTurn) release()                     {}
func (noTurn) close()                       {}

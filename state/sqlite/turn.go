package sqlite

// The turn is a lock that the processes which write to one file take in turns, around each batch: SQLite's own lock is
// polled for with growing pauses, so that of two busy processes one starves for seconds. It is for fairness alone:
// SQLite's lock is what keeps writers apart, so a process that can't have the turn in time goes on without it, and where
// there is no such lock there is none to take.
type turn interface {
	// try doesn't wait. free: nobody else has the turn. held: this process has it now.
	try() (held, free bool)
	// acquire waits, and tells whether this process has the turn now. What is held must be released.
	acquire() bool
	release()
	close()
}

type noTurn struct{}

func (noTurn) try() (held, free bool) { return false, true }
func (noTurn) acquire() bool          { return false }
func (noTurn) release()               {}
func (noTurn) close()                 {}

package sqlite

// The turn is a lock that the processes which write to one file take in turns, around each batch: SQLite's own lock is
// polled for with growing pauses, so that of two busy processes one starves for seconds. It is for fairness alone:
// SQLite's lock is what keeps writers apart, so a process that can't have the turn in time goes on without it, and where
// there is no such lock there is none to take.
type turn interface {
	// acquire tells whether the turn was had, and must then be followed by release.
	acquire() bool
	release()
	close()
}

type noTurn struct{}

func (noTurn) acquire() bool { return false }
func (noTurn) release()      {}
func (noTurn) close()        {}

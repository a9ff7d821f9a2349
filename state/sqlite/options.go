package sqlite

import (
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

const (
	// DefaultBusyTimeout is how long a write waits for other processes when [WithBusyTimeout] says nothing.
	DefaultBusyTimeout = 5 * time.Second
	// DefaultMaxRecord is how many bytes a record may take when [WithMaxRecord] says nothing: 16 MiB.
	DefaultMaxRecord = 16 << 20
)

// Clock is the time that a store goes by. It is sealed: the library's clocks are the only ones.
type Clock = clock.Clock

// Option changes what [Open] makes. It is sealed: this package's options are the only ones.
type Option interface {
	apply(*config)
}

type config struct {
	clock       clock.Clock
	busyTimeout time.Duration
	maxRecord   int
	unreadable  func(key string, err error)

	// What follows is for tests.
	migrations []migration
	points     failpoints
	oblivious  bool // know nothing of runs, so that every write reads
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

// WithClock makes the store go by c, which decides what has expired and which claims have lapsed. The default is the
// machine's clock, which nil stands for too.
func WithClock(c Clock) Option {
	return option(func(cfg *config) {
		if c != nil {
			cfg.clock = c
		}
	})
}

// WithBusyTimeout is how long a write waits for the other processes that write to the file before it fails, with nothing
// written; the wait for the turn and that for SQLite's lock are parts of it. The same goes for Open when it has to make or
// upgrade the file. It is kept to the millisecond, and to 24 days at most; the default is [DefaultBusyTimeout]; 0 or less:
// writes don't wait at all.
func WithBusyTimeout(d time.Duration) Option {
	return option(func(cfg *config) { cfg.busyTimeout = min(max(d, 0).Truncate(time.Millisecond), longestBusyTimeout) })
}

// longestBusyTimeout still fits the milliseconds that SQLite counts.
const longestBusyTimeout = 24 * 24 * time.Hour

// WithMaxRecord limits a record to n bytes, by the Size of the record. The default is [DefaultMaxRecord]; 0 or less: no
// limit but SQLite's own, which is about 1 GB for one payload.
func WithMaxRecord(n int) Option {
	return option(func(cfg *config) { cfg.maxRecord = max(n, 0) })
}

// WithUnreadable makes List, Claim and Parked pass over records that can't be read ([state.ErrCorrupt]), and tell f of each,
// every time that they meet it. f may be called concurrently. Without it such a record is an error of theirs, so that
// nobody loses a run without being told; but it then keeps them from those behind it.
func WithUnreadable(f func(key string, err error)) Option {
	return option(func(cfg *config) { cfg.unreadable = f })
}

func newConfig(opts []Option) config {
	c := config{clock: clock.System(), busyTimeout: DefaultBusyTimeout, maxRecord: DefaultMaxRecord, migrations: migrations}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	return c
}

package memory

import "github.com/tsuzuki-go/tsuzuki/internal/clock"

// Clock is the time that a store goes by. It is sealed: the library's clocks are the only ones.
type Clock = clock.Clock

// Option changes what [New] makes. It is sealed: this package's options are the only ones.
type Option interface {
	apply(*Store)
}

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithClock makes the store go by c, which decides what has expired and which claims have lapsed. The default is the
// machine's clock, which nil stands for too.
func WithClock(c Clock) Option {
	return option(func(s *Store) {
		if c != nil {
			s.clock = c
		}
	})
}

// WithMaxRecord limits a record to n bytes, by the Size of the record. The default is [DefaultMaxRecord]; 0 or less: no limit.
func WithMaxRecord(n int) Option {
	return option(func(s *Store) { s.maxRecord = max(n, 0) })
}

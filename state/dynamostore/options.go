package dynamostore

import (
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// Clock is the time that a store goes by. It is sealed: the library's clocks are the only ones.
type Clock = clock.Clock

// Option is a setting of [New], [CreateTable] and [Check]. The same options belong in all three.
type Option interface {
	apply(c *config) error
}

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	names
	indexed   bool
	shards    int
	oldShards int
	clock     Clock

	unreadable func(key string, err error)
}

// DefaultShards is how many partitions of the open index [New] spreads runs over. One takes about 1,000 entries and
// leavings a second.
const DefaultShards = 8

// maxShards keeps a listing, which asks each shard once, within reason.
const maxShards = 1000

func newConfig(opts []Option) (config, error) {
	c := config{names: standardNames(), indexed: true, shards: DefaultShards, clock: clock.System()}
	for _, o := range opts {
		if o == nil {
			return c, errors.New("dynamostore: a nil option")
		}
		if err := o.apply(&c); err != nil {
			return c, err
		}
	}
	return c, c.names.check()
}

// WithAttribute gives an attribute another name in the table than the standard one, such as "idempotency_key" or
// "expiration". The package's documentation lists them.
func WithAttribute(standard, name string) Option {
	return option(func(c *config) error { return c.rename(standard, name) })
}

// WithIndex gives the index another name than "open".
func WithIndex(name string) Option {
	return option(func(c *config) error {
		if len(name) < 3 || len(name) > 255 {
			return fmt.Errorf("dynamostore: index %q: a name has 3 to 255 characters", name)
		}
		c.index = name
		return nil
	})
}

// WithoutIndex does without the open index: a run then costs two write units less, but List, Claim and Parked are
// ErrUnsupported. So there is no recovery but by calling again with the same key, and messages leave only through the
// inline relay or not at all.
func WithoutIndex() Option {
	return option(func(c *config) error { c.indexed = false; return nil })
}

// WithShards spreads runs over n partitions of the open index instead of [DefaultShards]. The number may be changed on a
// live table. When it grows, the processes that still have the smaller number don't list the runs of the new partitions;
// once one process that recovers and relays has the larger number, nothing is missed. When it shrinks from old to n, say
// WithShards(n) together with WithOldShards(old) until every run that was open then has ended.
func WithShards(n int) Option {
	return option(func(c *config) error {
		if n < 1 || n > maxShards {
			return fmt.Errorf("dynamostore: WithShards(%d): want 1 to %d", n, maxShards)
		}
		c.shards = n
		return nil
	})
}

// WithOldShards lists the first n partitions of the open index even when fewer are written to; see [WithShards].
func WithOldShards(n int) Option {
	return option(func(c *config) error {
		if n < 1 || n > maxShards {
			return fmt.Errorf("dynamostore: WithOldShards(%d): want 1 to %d", n, maxShards)
		}
		c.oldShards = n
		return nil
	})
}

// WithClock sets the clock, which decides what has expired and which claims have lapsed. The default is the machine's.
func WithClock(clk Clock) Option {
	return option(func(c *config) error {
		if clk == nil {
			return errors.New("dynamostore: WithClock(nil)")
		}
		c.clock = clk
		return nil
	})
}

// WithUnreadable makes List, Claim and Parked pass over records that can't be read (ErrCorrupt), and tell f of each, every
// time that they meet it. f may be called concurrently. Without it such a record is an error of theirs, so that nobody
// loses a run without being told; but it then keeps them from those behind it.
func WithUnreadable(f func(key string, err error)) Option {
	return option(func(c *config) error {
		if f == nil {
			return errors.New("dynamostore: WithUnreadable(nil)")
		}
		c.unreadable = f
		return nil
	})
}

package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Relay is what an orchestrator needs of an [outbox.Relay] to send a run's messages right after it.
type Relay interface {
	// Lease is how long the closing write claims the messages for.
	Lease() time.Duration
	// Deliver publishes a batch that is claimed already for the time that is left, and removes what was sent. Best effort.
	Deliver(ctx context.Context, b outbox.Batch, left time.Duration) error
}

var _ Relay = (*outbox.Relay)(nil)

// WithRelay sends the messages of a run right after its closing write, which carries the relay's claim. Best effort: an
// outage never fails the run, and a relay's loop must run somewhere to send what was left.
func WithRelay(r Relay) Option {
	return option(func(c *config) error {
		if r == nil {
			return fmt.Errorf("WithRelay(nil)")
		}
		c.relay = r
		return nil
	})
}

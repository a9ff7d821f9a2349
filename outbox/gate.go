package outbox

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// gate keeps calls from a broker that is down. It is shared by everything that a relay does. Times are monotonic.
type gate struct {
	mu    sync.Mutex
	waits *backoff.ExponentialBackOff
	fails int
	since time.Duration // of the outage
	until time.Duration // closed
}

// epoch is to be read before a call, and given to fail after it.
func (g *gate) epoch() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fails
}

// fail closes the gate for a longer time. Of several calls that were under way together only the first counts, so that
// the wait grows with the outage and not with the number of workers. It is no shorter than the broker asked for.
func (g *gate) fail(epoch int, now, asked time.Duration) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if epoch != g.fails {
		return false
	}
	if g.fails == 0 {
		g.since = now
	}
	g.fails++
	g.until = now + max(g.waits.NextBackOff(), asked)
	return g.fails == 1
}

// open ends an outage. It reports how long it lasted; 0 when there was none.
func (g *gate) open(now time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fails == 0 {
		return 0
	}
	g.fails, g.until = 0, 0
	g.waits.Reset()
	return max(now-g.since, 1)
}

// state tells when the gate opens (a time gone by: it is open) and whether the broker was down at the last call.
func (g *gate) state() (until time.Duration, down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until, g.fails > 0
}

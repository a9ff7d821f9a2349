package sagatest

import (
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// Clock is a clock that stands still until a test moves it, for [saga.WithClock] and for a store's WithClock: give both
// the same one. The zero value is ready, and starts at the machine's time. It is used by its address, is not to be
// copied, and its methods may be called concurrently.
//
//	var clk sagatest.Clock
//	store := memory.New(memory.WithClock(&clk))
//	checkout, err := saga.New(definition, store, saga.WithClock(&clk))
//
// A wait before a retry, or before a write whose answer was lost is sent again, lasts until another goroutine of the test
// advances the clock. Where none does, say [Clock.AutoAdvance].
//
// The deadline of a caller's context stays on the machine's clock, where context keeps it.
type Clock struct{ fake }

type fake = clock.Fake

var _ saga.Clock = (*Clock)(nil)

// Now is where the wall clock stands.
func (c *Clock) Now() time.Time { return c.fake.Now() }

// Set puts the wall clock at t, forwards or backwards, without time passing: as a clock jumps that is set anew. No lease
// or wait ends by it in the process that has the clock; others see their leases by it.
func (c *Clock) Set(t time.Time) { c.fake.Set(t) }

// Advance lets d pass: leases lapse, waits and timeouts end, and heartbeats fall due, each in a goroutine of its own.
func (c *Clock) Advance(d time.Duration) { c.fake.Advance(d) }

// AutoAdvance makes each wait of a run, such as the one before a retry, move the clock by its length instead of waiting for
// the test to do so. Timers wait for Advance all the same, and so do an outbox.Relay's pauses: leave a relay that the test
// drains on the machine's clock.
func (c *Clock) AutoAdvance() { c.fake.AutoAdvance() }

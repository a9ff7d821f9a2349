// Package clock is the time that the library sees: the wall clock for what is stored, a monotonic one for leases and
// waits. Tests move both by hand.
package clock

import (
	"context"
	"time"
)

// Clock is sealed: only this package's clocks, and what embeds them, are Clocks.
type Clock interface {
	// Now is the wall clock. It may jump.
	Now() time.Time
	// Mono is the time since some fixed moment, and never jumps.
	Mono() time.Duration
	// AfterFunc calls f in its own goroutine once d has passed.
	AfterFunc(d time.Duration, f func()) Timer
	// Sleep waits for d or for the end of ctx, whose cause it then returns.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	sealed()
}

// Timer is a pending AfterFunc.
type Timer interface {
	// Stop keeps f from being called, and tells whether it did.
	Stop() bool
	// Reset sets the timer anew.
	Reset(d time.Duration) bool
}

type system struct{ start time.Time }

// System is the machine's clock.
func System() Clock { return theSystem }

var theSystem = system{time.Now()}

func (system) Now() time.Time        { return time.Now() }
func (s system) Mono() time.Duration { return time.Since(s.start) }
func (system) sealed()               {}

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

func (system) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package steps

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Run is what one attempt at a step sees of its run. There is a new one for every attempt. Its methods may be called
// concurrently; what is emitted after the attempt is over is dropped.
type Run[In any] struct {
	// Input of the run, decoded afresh for this call: a step can't change what another sees.
	Input In

	call *drive.Call
}

// Key of the run.
func (r *Run[In]) Key() state.Key { return r.call.Key }

// Step is the name of the step at hand.
func (r *Run[In]) Step() string { return r.call.Step }

// IdempotencyKey is DerivedKey as a string, to be passed to the participant.
func (r *Run[In]) IdempotencyKey() string { return r.call.DerivedKey() }

// DerivedKey is the key of this call: "<run key>/<step>", in a compensation "<run key>/<step>/compensate". A probe sees
// the forward key.
func (r *Run[In]) DerivedKey() DerivedKey { return DerivedKey(r.call.DerivedKey()) }

// Sub is the derived key of one of several calls in one step.
func (r *Run[In]) Sub(part string) DerivedKey { return r.DerivedKey().Sub(part) }

// Attempt counts the calls over all runs, from 1. After a crash it may be one too high.
func (r *Run[In]) Attempt() int { return r.call.Attempt }

// Resumed tells whether the run was taken up again, here or by recovery.
func (r *Run[In]) Resumed() bool { return r.call.Resumed }

// Emit adds a message to the step's commit: it is due once the step is recorded, or never. The body is encoded now. A
// message that can't be emitted (see [outbox.Message.Encode], [outbox.MaxMessages], [outbox.MaxBytes]) makes the attempt
// a permanent failure, with the step unknown.
func (r *Run[In]) Emit(m outbox.Message) { r.call.Emit(m) }

// Cause is why the run goes backwards, in a compensation; nil elsewhere.
func (r *Run[In]) Cause() error { return r.call.Cause }

type keyContext struct{}

// withKey makes the call's derived key known to the context.
func withKey(ctx context.Context, c *drive.Call) context.Context {
	return context.WithValue(ctx, keyContext{}, c)
}

// IdempotencyKey is the derived key of the call that this context belongs to; ok is false outside of a step.
func IdempotencyKey(ctx context.Context) (key string, ok bool) {
	c, ok := ctx.Value(keyContext{}).(*drive.Call)
	if !ok {
		return "", false
	}
	return c.DerivedKey(), true
}

// NewRun is for package saga: the run that a call's function sees.
func NewRun[In any](c *drive.Call) (*Run[In], error) {
	r := &Run[In]{call: c}
	plain := c.Decoded != nil && state.Plain[In]()
	if plain {
		if in, ok := (*c.Decoded).(In); ok {
			r.Input = in
			return r, nil
		}
	}
	if err := state.Decode(c.Input, &r.Input); err != nil {
		return nil, err
	}
	if plain {
		*c.Decoded = r.Input
	}
	return r, nil
}

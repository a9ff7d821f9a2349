package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
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
		if absent.Is(r) {
			return errors.New("WithRelay: the relay is nil")
		}
		c.relay = r
		return nil
	})
}

// deliver hands the run's messages to the relay, if the closing write has claimed them for it.
func (h *holder) deliver(ctx context.Context) {
	box := h.rec.Outbox
	if len(box.Messages) == 0 {
		return
	}
	if h.e.relay == nil {
		h.e.toldRelay.Do(func() {
			h.e.log.Warn("messages_without_relay", zap.String("key", h.runKey),
				zap.String("hint", "messages are stored and due, but this orchestrator has no WithRelay; run an outbox.Relay on the store"))
		})
		return
	}
	if box.Token == "" || !h.rec.Status.Ended() {
		return
	}
	send := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		send, cancel = context.WithDeadline(send, deadline)
		defer cancel()
	}
	b := outbox.Batch{RunKey: h.runKey, Token: box.Token, Messages: h.unsent(send)}
	if len(b.Messages) == 0 {
		return
	}
	if err := h.handOver(send, b); err != nil {
		h.e.log.Warn("relay_failed", zap.String("key", h.runKey), zap.Error(err))
	}
}

// handOver is the relay's one chance. It is waited for as long as its claim holds, or the caller has time: the run has
// ended, and must not hang because a publisher ignores its context. What it does after that is as of a relay whose lease
// has lapsed.
func (h *holder) handOver(ctx context.Context, b outbox.Batch) error {
	left := h.claimed + h.e.relay.Lease() - h.e.clk.Mono()
	answer := make(chan error, 1)
	go func() {
		err := errors.New("the relay called runtime.Goexit")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the relay panicked: %v", p)
			}
			answer <- err
		}()
		err = h.e.relay.Deliver(ctx, b, left)
	}()
	wait := left
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	late := time.NewTimer(wait + deliveryGrace)
	defer late.Stop()
	select {
	case err := <-answer:
		return err
	case <-late.C:
		return errors.New("a publisher ignores the end of its context; it is no longer waited for, and the messages are due again when the claim has lapsed")
	}
}

// deliveryGrace is for a relay that minds its context to give up.
const deliveryGrace = 100 * time.Millisecond

// seenByLoops is the age of a message from which a relay's loop may well have sent it before the closing write.
const seenByLoops = time.Second

// unsent are the messages that the closing write has claimed. What this holder knows of them may be old: a relay's loop
// sends the messages of a step while the next steps run. Then the record is read, so that they are not sent twice.
func (h *holder) unsent(ctx context.Context) []outbox.Message {
	box := h.rec.Outbox
	if h.rec.UpdatedAt.Sub(box.Messages[0].Time) < seenByLoops {
		return box.Sendable()
	}
	rec, err := h.e.store.Get(ctx, h.runKey)
	if err != nil || rec.Outbox.Token != box.Token {
		return nil // a loop sends them
	}
	return rec.Outbox.Sendable()
}

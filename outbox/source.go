package outbox

import (
	"context"
	"time"
)

// Batch is the due messages of one run, in the order of their emission, claimed under one lease.
type Batch struct {
	// RunKey is the encoded key of the run.
	RunKey string
	// Token fences the claim: Sent and Park with another token than the run's latest are refused with [ErrClaimLost].
	Token string
	// Messages are due, in order.
	Messages []Message
}

// Result says what became of one message.
type Result struct {
	// ID of the message, by which its result is found.
	ID string
	// Err is nil when the broker has accepted the message. An error that has a method RetryAfter() time.Duration (found
	// through wrapping) says when to try again; [ErrHeldBack] says that the message itself was not tried.
	Err error
	// Refused: the broker will not accept this message, and trying again is no use.
	Refused bool
}

// Source is where due messages come from. Every state store is one. All methods may be called concurrently.
type Source interface {
	// Claim takes the due messages of some runs under a lease: at most limit messages, though a run whose messages alone
	// are more than limit is handed out with its first limit messages. Messages of a run that is claimed already, or
	// that are parked, are not due. A run with a parked message hands out nothing that was emitted after it.
	// Claim also closes ended runs that it finds with nothing left to send.
	Claim(ctx context.Context, limit int, lease time.Duration) ([]Batch, error)
	// Sent removes the messages with these IDs from the run, if b.Token is still the run's claim, and releases the claim
	// when all of b's messages have been dealt with. A run that has ended and has nothing left to send gets its expiry.
	// IDs that are gone already are passed over. An empty ids releases the claim.
	Sent(ctx context.Context, b Batch, ids []string) error
	// Park sets the message aside, together with all that the same run emitted after it, and releases the claim.
	Park(ctx context.Context, b Batch, id, reason string) error
	// Parked lists the messages that were parked for a reason of their own, a page at a time: cursor is empty at first,
	// then what the last call returned as next, until that is empty.
	Parked(ctx context.Context, cursor string) (msgs []Message, next string, err error)
	// Unpark ends the parking of a message: with resend it and its successors are due again, without it that message is
	// dropped and its successors are due. The run's audit gets a line with the note. [ErrNotParked] if it isn't parked.
	Unpark(ctx context.Context, id string, resend bool, note string) error
}

// Publisher gives messages to a broker. Publish may be called concurrently; the messages of one call are in order, and
// where the broker has an order, it must be kept: when a message fails, its successors with the same ordering key are not
// sent. It returns a result per message, in any order and with the message's ID, or an error that speaks of the broker as a whole (no connection, throttled,
// down), in which case any of the messages may have been sent. With such an error it may return the results that are
// certain all the same.
//
// Publish must return soon after ctx has ended: a relay that is to stop waits for it however long it takes, and the caller of
// a run whose messages are sent right after it waits as long as the relay's lease.
type Publisher interface {
	Publish(ctx context.Context, msgs []Message) ([]Result, error)
}

// PublisherFunc is a function as a [Publisher].
type PublisherFunc func(ctx context.Context, msgs []Message) ([]Result, error)

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, msgs []Message) ([]Result, error) {
	return f(ctx, msgs)
}

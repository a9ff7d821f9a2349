package outbox

import "errors"

var (
	// ErrClaimLost is returned by Sent and Park when another relay has claimed the run since, or its record is gone. What
	// was published meanwhile is published again by that relay, with the same IDs.
	ErrClaimLost = errors.New("outbox: the claim on the run's messages is lost to another relay")
	// ErrNotParked is returned by Unpark for a message that isn't parked.
	ErrNotParked = errors.New("outbox: no such parked message")
	// ErrHeldBack is the result of a message that a publisher did not try, because one before it with the same topic and
	// ordering key failed in the same call.
	ErrHeldBack = errors.New("outbox: held back behind a message that failed")
	// ErrOutage is returned by Drain and Deliver when the broker as a whole does not take messages: no connection,
	// throttling, an error of its own. The messages stay due.
	ErrOutage = errors.New("outbox: the broker is not taking messages")
	// ErrUnsent is returned by Drain and Deliver when messages could not be sent for another reason. They stay due, or
	// are parked.
	ErrUnsent = errors.New("outbox: messages are left unsent")
)

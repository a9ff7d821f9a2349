package outbox

import "errors"

var (
	// ErrClaimLost is returned by Sent and Park when another relay has claimed the run since, or its record is gone. What
	// was published meanwhile is published again by that relay, with the same IDs.
	ErrClaimLost = errors.New("outbox: the claim on the run's messages is lost to another relay")
	// ErrNotParked is returned by Unpark for a message that isn't parked.
	ErrNotParked = errors.New("outbox: no such parked message")
)

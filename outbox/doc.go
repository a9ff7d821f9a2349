// Package outbox is Tsuzuki's transactional outbox: a message leaves if and only if the step that emitted it is recorded.
//
// A step emits messages with Run.Emit. They are stored by the very write that records the step, and so become due with
// that write or never. A [Source] (every state store is one) hands due messages out under a fenced lease, a relay gives
// them to a [Publisher] in order per run, and tells the source which were sent.
//
// Delivery is at least once: a relay that dies after publishing and before saying so publishes again, with the same
// [Message.ID]. Consumers deduplicate by that ID.
//
// This package is the lowest of the five core packages and imports none of the others.
package outbox

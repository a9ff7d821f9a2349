package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Outbox is the unsent messages of a run and the relay's claim on them. The relay's writes never touch the record's
// owner, revision or write ID.
type Outbox struct {
	// Messages in the order of emission; their bodies are []byte.
	Messages []OutboxMessage
	// Token of the latest claim; empty when there is none.
	Token string
	// ClaimedUntil is the end of the claim's lease.
	ClaimedUntil time.Time
}

// OutboxMessage is one unsent message.
type OutboxMessage struct {
	outbox.Message
	// Parked is the reason why the message was set aside. Messages behind a parked one are held back by it without a
	// reason of their own.
	Parked string
}

// Claim is a relay's hold on a run's messages for a time.
type Claim struct {
	// Token is random per claim.
	Token string
	// Until is its end.
	Until time.Time
}

// Clone is a deep copy.
func (o Outbox) Clone() Outbox {
	o.Messages = slices.Clone(o.Messages)
	for i := range o.Messages {
		o.Messages[i].Message = CloneMessage(o.Messages[i].Message)
	}
	return o
}

// Due are the messages that may be claimed at now: none while a claim is live, otherwise those before the first parked.
func (o Outbox) Due(now time.Time) []outbox.Message {
	if o.Token != "" && o.ClaimedUntil.After(now) {
		return nil
	}
	return o.Sendable()
}

// Sendable are the messages before the first parked one, claimed or not.
func (o Outbox) Sendable() []outbox.Message {
	var due []outbox.Message
	for _, m := range o.Messages {
		if m.Parked != "" {
			break
		}
		due = append(due, m.Message)
	}
	return due
}

// Sent is the meaning of [outbox.Source]'s Sent. The claim is released when none of the batch's messages is left, or
// when there are no IDs.
func (o *Outbox) Sent(b outbox.Batch, ids []string) error {
	if o.Token == "" || o.Token != b.Token {
		return fmt.Errorf("run %s: %w", b.RunKey, outbox.ErrClaimLost)
	}
	o.Messages = slices.DeleteFunc(o.Messages, func(m OutboxMessage) bool { return slices.Contains(ids, m.ID) })
	left := slices.ContainsFunc(o.Messages, func(m OutboxMessage) bool {
		return slices.ContainsFunc(b.Messages, func(c outbox.Message) bool { return c.ID == m.ID })
	})
	if !left || len(ids) == 0 {
		o.Token, o.ClaimedUntil = "", time.Time{}
	}
	return nil
}

// Park is the meaning of [outbox.Source]'s Park. A message that is gone leaves nothing to park; the claim is released.
func (o *Outbox) Park(b outbox.Batch, id, reason string) error {
	if o.Token == "" || o.Token != b.Token {
		return fmt.Errorf("run %s: %w", b.RunKey, outbox.ErrClaimLost)
	}
	if i := o.index(id); i >= 0 {
		if reason == "" {
			reason = "refused"
		}
		o.Messages[i].Parked = Cut(reason)
	}
	o.Token, o.ClaimedUntil = "", time.Time{}
	return nil
}

// Unpark is the meaning of [outbox.Source]'s Unpark, without the audit line.
func (o *Outbox) Unpark(id string, resend bool) error {
	i := o.index(id)
	if i < 0 || o.Messages[i].Parked == "" {
		return fmt.Errorf("message %s: %w", id, outbox.ErrNotParked)
	}
	if resend {
		o.Messages[i].Parked = ""
	} else {
		o.Messages = slices.Delete(o.Messages, i, i+1)
	}
	return nil
}

// Settle gives a record that has ended and has nothing left to send its expiry, if it is to have one, and tells whether
// it did. Stores call it after Sent and Unpark, and Claim for every ended record that it comes across: a holder whose view
// of the outbox was older than the relay's closes its run without an expiry.
func (r *Record) Settle(now time.Time) bool {
	if !r.Status.Ended() || !r.ExpiresAt.IsZero() {
		return false
	}
	r.ExpiresAt = r.Expiry(now)
	return !r.ExpiresAt.IsZero()
}

// MessageRun is the encoded key of the run that emitted the message with this ID, "<run key>/<step>...": what stands
// before the first slash, which key parts escape. false: it is not such an ID.
func MessageRun(id string) (runKey string, ok bool) {
	runKey, _, ok = strings.Cut(id, "/")
	return runKey, ok && runKey != ""
}

func (o *Outbox) index(id string) int {
	return slices.IndexFunc(o.Messages, func(m OutboxMessage) bool { return m.ID == id })
}

// UnparkAudit is the audit line of an Unpark. Texts of a person are cut as everywhere in an audit; see [Cut].
func UnparkAudit(actor, id string, resend bool, note string, at time.Time) AuditEntry {
	verb := "unpark_drop"
	if resend {
		verb = "unpark_resend"
	}
	return AuditEntry{At: Milli(at), Actor: Cut(actor), Verb: verb, Step: id, Note: Cut(note)}
}

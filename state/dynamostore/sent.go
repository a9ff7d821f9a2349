package dynamostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// sentAtOnce is how many messages one update removes. An expression has room for about 4 KB and 300 operators.
const sentAtOnce = 50

// Sent removes messages that have been sent, with the siblings of their bodies; see [outbox.Source]. A run that has
// ended gets its expiry by the same write where that takes its last message away.
func (s *Store) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	if b.Token == "" {
		return lost(b)
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	release := len(ids) == 0
	for len(ids) > sentAtOnce {
		if _, err := s.removeMessages(ctx, b, ids[:sentAtOnce], false); err != nil {
			return err
		}
		ids = ids[sentAtOnce:]
	}
	if !release && !slices.ContainsFunc(b.Messages, func(m outbox.Message) bool { return !slices.Contains(ids, m.ID) }) {
		if done, err := s.closeSent(ctx, b, ids); done || err != nil {
			return err
		}
		release = true
	}
	after, err := s.removeMessages(ctx, b, ids, release)
	if err != nil {
		return err
	}
	return s.afterSent(ctx, b, after)
}

// afterSent ends the claim when none of the batch is left, though the call did not name them all, and closes an ended run
// that has no message left.
func (s *Store) afterSent(ctx context.Context, b outbox.Batch, it item) error {
	h, err := s.decodeHeader(it)
	if err != nil {
		return err
	}
	left := slices.ContainsFunc(h.messages, func(m storedMessage) bool {
		return slices.ContainsFunc(b.Messages, func(c outbox.Message) bool { return c.ID == m.ID })
	})
	if !left && h.rec.Outbox.Token == b.Token {
		if it, err = s.removeMessages(ctx, b, nil, true); err != nil {
			return err
		}
	}
	return s.tidy(ctx, it)
}

// claimed starts an update under the relay's claim. A write that ends the claim leaves its own name, by which it is known
// again when its answer was lost.
func (s *Store) claimed(b outbox.Batch, release bool) (e *expression, name string) {
	e = newExpression()
	token := "#ob." + e.name("#t", claimToken)
	e.name("#ob", s.names.Outbox)
	e.where(token + "=" + e.value(":t", str(b.Token)))
	if release {
		name = newName()
		e.remove(token)
		e.remove("#ob." + e.name("#ut", claimUntil))
		s.leaveName(e, name)
	}
	return e, name
}

// newName is 80 random bits.
func newName() string { return rand.Text()[:16] }

func (s *Store) leaveName(e *expression, name string) {
	e.set(e.name("#rw", s.names.RelayWriteID), e.value(":rw", str(name)))
}

// ownWrite is the header that a write of this name has left, when what refused it is that it was made before and its
// answer was lost.
func (s *Store) ownWrite(old item, name string) bool {
	return name != "" && old != nil && (&reader{it: old}).str(s.names.RelayWriteID) == name
}

// removeMessages removes messages under the claim, and their bodies' siblings. It returns the header after that.
func (s *Store) removeMessages(ctx context.Context, b outbox.Batch, ids []string, release bool) (item, error) {
	e, name := s.claimed(b, release)
	for _, id := range ids {
		e.remove(e.child("#ob", messageKey(b.RunKey, id)))
	}
	before, refusal, old, err := s.update(ctx, "sent", b.RunKey, e, types.ReturnValueAllOld)
	switch {
	case err != nil:
		return nil, err
	case refusal && s.ownWrite(old, name):
		return old, nil
	case refusal:
		return nil, lost(b)
	}
	after := s.withoutMessages(before, b.RunKey, ids, release)
	return after, s.dropBodies(ctx, b.RunKey, before, ids)
}

func lost(b outbox.Batch) error {
	return fmt.Errorf("dynamostore: run %s: %w", b.RunKey, outbox.ErrClaimLost)
}

// withoutMessages is the header after messages, and the claim if that is released, have been removed from it.
func (s *Store) withoutMessages(it item, runKey string, ids []string, release bool) item {
	out := maps.Clone(it)
	messages := maps.Clone((&reader{it: it}).mapOf(s.names.Outbox))
	for _, id := range ids {
		delete(messages, messageKey(runKey, id))
	}
	if release {
		delete(messages, claimToken)
		delete(messages, claimUntil)
	}
	out[s.names.Outbox] = mapOf(messages)
	return out
}

// dropBodies removes the siblings of messages that were in the header before and no longer are. What a crash leaves of
// them expires.
func (s *Store) dropBodies(ctx context.Context, runKey string, before item, ids []string) error {
	h, err := s.decodeHeader(before)
	if err != nil {
		return err
	}
	var parts []string
	for i := range h.messages {
		if m := &h.messages[i]; m.body.sibling && slices.Contains(ids, m.ID) {
			parts = append(parts, m.body.part(messagePart(m.seq)))
		}
	}
	return s.deleteItems(ctx, "sent", runKey, parts)
}

// closeSent removes the last messages of a run that has ended, and closes it, in one write. It tries that only where what
// this store knows of the run makes it likely; done is false when it was not so.
func (s *Store) closeSent(ctx context.Context, b outbox.Batch, ids []string) (done bool, err error) {
	h, ok := s.memo.get(b.RunKey)
	if !ok || !h.ended {
		return false, nil
	}
	n := &s.names
	e, name := s.claimed(b, true)
	for _, id := range ids {
		path := e.child("#ob", messageKey(b.RunKey, id))
		e.remove(path)
		e.where("attribute_exists(" + path + ")")
	}
	e.where("size(#ob)=" + e.value(":keys", num(int64(len(ids)+2)))) // the claim has two
	e.name("#s", n.Status)
	e.value(":sa", str(string(state.StatusCompleted)))
	e.value(":sb", str(string(state.StatusFailed)))
	e.value(":sc", str(string(state.StatusReversed)))
	e.where("#s IN (:sa,:sb,:sc) AND attribute_not_exists(" + e.name("#e", n.Expiration) + ")")
	e.name("#rt", n.Retention)
	if h.retention > 0 {
		e.where("attribute_exists(#rt)")
		e.set("#e", "#rt+"+e.value(":now", num(state.CeilSecond(s.clock.Now()).Unix())))
	} else {
		e.where("attribute_not_exists(#rt)")
	}
	e.remove(e.name("#os", n.OpenShard))
	before, refusal, old, err := s.update(ctx, "sent", b.RunKey, e, types.ReturnValueAllOld)
	switch {
	case err != nil:
		return false, err
	case refusal:
		return s.ownWrite(old, name), nil
	}
	h.messages = false
	s.memo.put(b.RunKey, h)
	return true, s.dropBodies(ctx, b.RunKey, before, ids)
}

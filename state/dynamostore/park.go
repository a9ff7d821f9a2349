package dynamostore

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Park sets the message aside; see [outbox.Source].
func (s *Store) Park(ctx context.Context, b outbox.Batch, id, reason string) error {
	it, err := s.readHeader(ctx, "park", b.RunKey)
	name := newName()
	for range 8 {
		if err != nil {
			return err
		}
		if it == nil {
			return lost(b)
		}
		if s.ownWrite(it, name) {
			return s.tidy(ctx, it)
		}
		h, err := s.decodeHeader(it)
		if err != nil {
			return err
		}
		if err := h.rec.Outbox.Park(b, id, reason); err != nil {
			return fmt.Errorf("dynamostore: %w", err)
		}
		e := s.parkExpression(b, h, it, id, name)
		var refusal bool
		var after item
		if after, refusal, it, err = s.update(ctx, "park", b.RunKey, e, types.ReturnValueAllNew); err != nil {
			return err
		}
		if !refusal {
			return s.tidy(ctx, after)
		}
	}
	return fmt.Errorf("dynamostore: park %s: the message changes all the time", id)
}

func (s *Store) parkExpression(b outbox.Batch, h *header, it item, id, name string) *expression {
	e := newExpression()
	e.name("#ob", s.names.Outbox)
	token := "#ob." + e.name("#t", claimToken)
	e.where(token + "=" + e.value(":t", str(b.Token)))
	e.remove(token)
	e.remove("#ob." + e.name("#ut", claimUntil))
	s.leaveName(e, name)
	if i := h.index(id); i >= 0 {
		s.replaceMessage(e, h, it, i, h.rec.Outbox.Messages[i].Parked)
	}
	return e
}

func (h *header) index(id string) int {
	return slices.IndexFunc(h.messages, func(m storedMessage) bool { return m.ID == id })
}

// replaceMessage gives the message at i, if it is still as it was read, another reason for being parked.
func (s *Store) replaceMessage(e *expression, h *header, it item, i int, parked string) {
	m := &h.messages[i]
	path := e.child("#ob", m.key)
	v := encodeMessage(&m.Message, m.seq, baseOf(h.rec.CreatedAt), parked, m.body)
	e.set(path, e.value(":new", str(v)))
	e.where(path + "=" + e.value(":old", (&reader{it: it}).mapOf(s.names.Outbox)[m.key]))
}

// Parked lists parked messages of the runs in the open index, which lags a moment behind; see [outbox.Source]. A page
// holds all those of a run, and so may be somewhat longer than [state.DefaultPage]. ErrUnsupported on a store made
// WithoutIndex.
func (s *Store) Parked(ctx context.Context, cursor string) (msgs []outbox.Message, next string, err error) {
	if !s.indexed {
		return nil, "", s.unsupported("Parked", " without the index")
	}
	at, err := parsePosition(cursor)
	if err != nil {
		return nil, "", err
	}
	var found []*header
	count := 0
	for seen, end := 0, false; !end && count < state.DefaultPage && seen < examined; {
		at, end, err = s.walk(ctx, "list parked", at, batchSize, func(h *header, _ item) (bool, error) {
			if count >= state.DefaultPage {
				return false, nil
			}
			seen++
			if n := h.parked(); n > 0 {
				found, count = append(found, h), count+n
			}
			return true, nil
		})
		if err != nil {
			return nil, "", err
		}
		if !end {
			next = at.String()
		} else {
			next = ""
		}
	}
	msgs, err = s.parkedOf(ctx, found)
	return msgs, next, err
}

func (h *header) parked() (n int) {
	for i := range h.messages {
		if h.messages[i].Parked != "" {
			n++
		}
	}
	return n
}

// parkedOf are the parked messages of those runs, bodies included. A lost body stays empty.
func (s *Store) parkedOf(ctx context.Context, found []*header) (msgs []outbox.Message, err error) {
	for _, h := range found {
		first := len(msgs)
		var refs []ref
		for i := range h.messages {
			m := &h.messages[i]
			if m.Parked == "" {
				continue
			}
			at := len(msgs)
			msgs = append(msgs, m.Message)
			if m.body.sibling {
				refs = append(refs, ref{part: m.body.part(messagePart(m.seq)), fill: func(raw []byte) { msgs[at].Body = raw }})
			}
		}
		if len(refs) > 0 {
			if _, err := s.fill(ctx, "list parked", h.rec.Key, refs); err != nil {
				return msgs[:first], err
			}
		}
	}
	return msgs, nil
}

// Unpark ends the parking of a message; see [outbox.Source].
func (s *Store) Unpark(ctx context.Context, id string, resend bool, note string) error {
	key, ok := state.MessageRun(id)
	if !ok {
		return notParked(id)
	}
	it, err := s.readHeader(ctx, "unpark in", key)
	name := newName()
	var dropped []string // the sibling of the dropped message's body
	for range 8 {
		if err != nil {
			return err
		}
		if s.ownWrite(it, name) {
			return s.unparked(ctx, key, it, dropped)
		}
		h, err := s.look(it)
		switch {
		case err != nil:
			return err
		case h == nil:
			return notParked(id)
		}
		e, err := s.unparkExpression(ctx, h, it, id, resend, note)
		if err != nil {
			return err
		}
		dropped = nil
		if m := &h.messages[h.index(id)]; !resend && m.body.sibling {
			dropped = []string{m.body.part(messagePart(m.seq))}
		}
		s.leaveName(e, name)
		var refusal bool
		var after item
		if after, refusal, it, err = s.update(ctx, "unpark in", key, e, types.ReturnValueAllNew); err != nil {
			return err
		}
		if !refusal {
			return s.unparked(ctx, key, after, dropped)
		}
	}
	return fmt.Errorf("dynamostore: unpark %s: the message changes all the time", id)
}

func (s *Store) unparked(ctx context.Context, key string, after item, dropped []string) error {
	if err := s.deleteItems(ctx, "unpark in", key, dropped); err != nil {
		return err
	}
	return s.tidy(ctx, after)
}

func notParked(id string) error {
	return fmt.Errorf("dynamostore: message %s: %w", id, outbox.ErrNotParked)
}

func (s *Store) unparkExpression(ctx context.Context, h *header, it item, id string, resend bool, note string) (*expression, error) {
	i := h.index(id)
	if err := h.rec.Outbox.Unpark(id, resend); err != nil {
		return nil, fmt.Errorf("dynamostore: %w", err)
	}
	e := newExpression()
	e.name("#ob", s.names.Outbox)
	if resend {
		s.replaceMessage(e, h, it, i, "")
	} else {
		path := e.child("#ob", h.messages[i].key)
		e.remove(path)
		e.where(path + "=" + e.value(":old", (&reader{it: it}).mapOf(s.names.Outbox)[h.messages[i].key]))
	}
	line := state.UnparkAudit(state.Actor(ctx), id, resend, note, s.clock.Now())
	e.append("#a", ":a", s.names.Audit, encodeAudit([]state.AuditEntry{line}))
	return e, nil
}

// tidy ends a run that has ended and has nothing left to send.
func (s *Store) tidy(ctx context.Context, it item) error {
	h, err := s.decodeHeader(it)
	if err != nil {
		return err
	}
	s.memo.put(h.rec.Key, hintOf(h.rec))
	if h.rec.Status.Ended() && len(h.messages) == 0 {
		return s.settle(ctx, h, it)
	}
	return nil
}

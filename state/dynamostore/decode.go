package dynamostore

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// header is a header item, read.
type header struct {
	rec *state.Record
	// refs are the payloads that live in siblings, to be filled in.
	refs []ref
	// messages are those of the outbox, in order; rec has them too.
	messages     []storedMessage
	relayWriteID string
}

// ref is a payload of the record that lives in a sibling.
type ref struct {
	part string
	what string // for messages to people
	fill func(raw []byte)
	// vital: without it the record can't be used.
	vital bool
}

// decodeHeader reads a header. Payloads in siblings are left empty and listed in refs. Errors are of class ErrCorrupt or
// ErrNewerRecord.
func (s *Store) decodeHeader(it item) (*header, error) {
	n, r := &s.names, &reader{it: it}
	rec := &state.Record{Key: r.str(n.Key)}
	if version := r.int(n.RecordVersion); version > state.RecordVersion {
		return nil, fmt.Errorf("dynamostore: run %s: version %d, this one knows %d: %w", rec.Key, version, state.RecordVersion, state.ErrNewerRecord)
	}
	h := &header{rec: rec, relayWriteID: r.str(n.RelayWriteID)}
	rec.Operation, rec.Version, rec.PayloadHash = r.str(n.Operation), r.int(n.Version), r.str(n.PayloadHash)
	retention, _ := r.num(n.Retention)
	rec.Retention = time.Duration(retention) * time.Second
	rec.Status, rec.EndsAs, rec.CurrentStep = state.Status(r.str(n.Status)), state.Status(r.str(n.EndsAs)), r.str(n.CurrentStep)
	rec.Owner, rec.WriteID, rec.Runs = r.str(n.Owner), r.str(n.WriteID), r.int(n.Run)
	rec.LeaseUntil, rec.NotBefore, rec.ExpiresAt = r.milli(n.Lease), r.milli(n.NotBefore), r.second(n.Expiration)
	rec.Revision, _ = r.num(n.Revision)
	rec.CreatedAt, rec.UpdatedAt = r.milli(n.CreatedAt), r.milli(n.UpdatedAt)
	if !rec.Status.Valid() && r.err == nil {
		r.err = fmt.Errorf("%w: the status %q", state.ErrCorrupt, state.Cut(string(rec.Status)))
	}
	for _, part := range []func(*header, *reader) error{s.decodeNotes, s.decodePayloads, s.decodeSteps, s.decodeOutbox} {
		if err := part(h, r); err != nil && r.err == nil {
			r.err = err
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("dynamostore: run %s: %w", rec.Key, r.err)
	}
	return h, nil
}

func (s *Store) decodeNotes(h *header, r *reader) error {
	if text := r.str(s.names.Failure); text != "" {
		var f failureJSON
		if err := decodeJSON("failure", text, &f); err != nil {
			return err
		}
		h.rec.Failure = f.failure()
	}
	if text := r.str(s.names.Cancel); text != "" {
		var c cancelJSON
		if err := decodeJSON("cancel", text, &c); err != nil {
			return err
		}
		h.rec.Cancel = c.cancel()
	}
	switch lines := r.it[s.names.Audit].(type) {
	case nil:
	case *types.AttributeValueMemberL:
		for _, line := range lines.Value {
			text, ok := line.(*types.AttributeValueMemberS)
			if !ok {
				return fmt.Errorf("%w: an audit line is a %T", state.ErrCorrupt, line)
			}
			var a auditJSON
			if err := decodeJSON("audit", text.Value, &a); err != nil {
				return err
			}
			h.rec.Audit = append(h.rec.Audit, a.entry())
		}
	default:
		r.fail(s.names.Audit, lines)
	}
	return nil
}

func (s *Store) decodePayloads(h *header, r *reader) error {
	ended := h.rec.Status.Ended()
	raw, at := r.payload(s.names.Input)
	h.rec.Input = raw
	if at.sibling {
		h.refs = append(h.refs, ref{at.part(inputPart), "the input", func(raw []byte) { h.rec.Input = raw }, !ended})
	}
	raw, at = r.payload(s.names.Response)
	h.rec.Response = raw
	if at.sibling {
		h.refs = append(h.refs, ref{at.part(responsePart), "the result", func(raw []byte) { h.rec.Response = raw }, true})
	}
	return nil
}

func (s *Store) decodeSteps(h *header, r *reader) (err error) {
	rec := h.rec
	if rec.Plan, rec.Pivot, err = decodePlan(r.str(s.names.Plan)); err != nil {
		return err
	}
	steps := r.mapOf(s.names.Steps)
	if len(steps) == 0 {
		return nil
	}
	rec.Steps = make([]state.StepRecord, len(steps))
	for i := range rec.Steps {
		text, ok := steps[strconv.Itoa(i)].(*types.AttributeValueMemberS)
		if !ok {
			return fmt.Errorf("%w: %d steps, and none at position %d", state.ErrCorrupt, len(steps), i)
		}
		st, named, output, err := decodeStep(text.Value, baseOf(rec.CreatedAt))
		switch {
		case err != nil:
			return err
		case named:
		case i < len(rec.Plan):
			st.Name = rec.Plan[i]
		default:
			return fmt.Errorf("%w: no name for the step at position %d", state.ErrCorrupt, i)
		}
		rec.Steps[i] = st
		if output.sibling {
			h.refs = append(h.refs, ref{output.part(stepPart(i)), "the result of step " + st.Name, func(raw []byte) { rec.Steps[i].Output = raw }, !rec.Status.Ended()})
		}
	}
	return nil
}

func (s *Store) decodeOutbox(h *header, r *reader) error {
	o := &h.rec.Outbox
	messages := &reader{it: r.mapOf(s.names.Outbox)}
	for key, v := range messages.it {
		switch key {
		case claimToken:
			o.Token = messages.str(claimToken)
			continue
		case claimUntil:
			o.ClaimedUntil = messages.milli(claimUntil)
			continue
		}
		text, ok := v.(*types.AttributeValueMemberS)
		if !ok {
			return fmt.Errorf("%w: the message %q is a %T", state.ErrCorrupt, state.Cut(key), v)
		}
		m, err := decodeMessage(h.rec.Key, key, text.Value, baseOf(h.rec.CreatedAt))
		if err != nil {
			return err
		}
		h.messages = append(h.messages, m)
	}
	slices.SortFunc(h.messages, func(a, b storedMessage) int { return a.seq.compare(b.seq) })
	if len(h.messages) > 0 {
		o.Messages = make([]state.OutboxMessage, len(h.messages))
	}
	for i, m := range h.messages {
		o.Messages[i] = m.OutboxMessage
		if m.body.sibling {
			h.refs = append(h.refs, ref{m.body.part(messagePart(m.seq)), "the body of message " + m.ID, func(raw []byte) { o.Messages[i].Body = raw }, false})
		}
	}
	return messages.err
}

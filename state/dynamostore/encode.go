package dynamostore

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// encodeRecord is the header of a record, and the siblings that it refers to.
func (s *Store) encodeRecord(r *state.Record) (item, []sibling, error) {
	n := &s.names
	it := make(item, 28)
	text := func(name, v string) {
		if v != "" {
			it[name] = str(v)
		}
	}
	milli := func(name string, t time.Time) {
		if !t.IsZero() {
			it[name] = num(t.UnixMilli())
		}
	}
	it[n.Key], it[n.Part] = str(r.Key), str(headerPart)
	text(n.Operation, r.Operation)
	if r.Version != 0 {
		it[n.Version] = num(int64(r.Version))
	}
	it[n.RecordVersion] = num(state.RecordVersion)
	if seconds := retentionSeconds(r.Retention); seconds != 0 {
		it[n.Retention] = num(seconds)
	}
	text(n.Plan, encodePlan(r.Plan, r.Pivot))
	text(n.Status, string(r.Status))
	text(n.EndsAs, string(r.EndsAs))
	text(n.CurrentStep, r.CurrentStep)
	text(n.PayloadHash, r.PayloadHash)
	text(n.Owner, r.Owner)
	text(n.WriteID, r.WriteID)
	it[n.Run] = num(int64(r.Runs))
	milli(n.Lease, r.LeaseUntil)
	milli(n.NotBefore, r.NotBefore)
	if !r.ExpiresAt.IsZero() {
		it[n.Expiration] = num(state.CeilSecond(r.ExpiresAt).Unix())
	}
	it[n.Revision] = num(r.Revision)
	it[n.CreatedAt] = num(r.CreatedAt.UnixMilli()) // always: the index wants it
	milli(n.UpdatedAt, r.UpdatedAt)
	if r.Failure != nil {
		it[n.Failure] = str(encodeJSON(toFailure(r.Failure)))
	}
	if r.Cancel != nil {
		it[n.Cancel] = str(encodeJSON(toCancel(r.Cancel)))
	}
	if len(r.Audit) > 0 {
		it[n.Audit] = list(encodeAudit(r.Audit))
	}
	if s.indexed && r.Open() {
		it[n.OpenShard] = num(s.shard(r.Key))
	}
	p := &placer{runKey: r.Key, writeID: r.WriteID}
	if err := s.encodePayloads(it, r, p); err != nil {
		return nil, nil, err
	}
	return it, p.siblings, p.err
}

func (s *Store) encodePayloads(it item, r *state.Record, p *placer) error {
	n, b := &s.names, baseOf(r.CreatedAt)
	if len(r.Input) > 0 {
		it[n.Input] = payloadValue(r.Input, p.place(inputPart, r.Input, inlines(r.Input)))
	}
	if len(r.Response) > 0 {
		it[n.Response] = payloadValue(r.Response, p.place(responsePart, r.Response, inlines(r.Response)))
	}
	steps := make(item, len(r.Steps))
	for i := range r.Steps {
		st := &r.Steps[i]
		output := p.place(stepPart(i), st.Output, fitsStep(st.Output))
		v, err := encodeStep(st, b, i >= len(r.Plan) || r.Plan[i] != st.Name, output)
		if err != nil {
			return err
		}
		steps[strconv.Itoa(i)] = str(v)
	}
	it[n.Steps] = mapOf(steps)
	messages := make(item, len(r.Outbox.Messages)+2)
	for i := range r.Outbox.Messages {
		m := &r.Outbox.Messages[i]
		seq := sequence{r.Revision, i}
		body := p.place(messagePart(seq), m.Bytes(), inlines(m.Bytes()))
		messages[messageKey(r.Key, m.ID)] = str(encodeMessage(&m.Message, seq, b, m.Parked, body))
	}
	if r.Outbox.Token != "" {
		messages[claimToken] = str(r.Outbox.Token)
	}
	if !r.Outbox.ClaimedUntil.IsZero() {
		messages[claimUntil] = num(r.Outbox.ClaimedUntil.UnixMilli())
	}
	it[n.Outbox] = mapOf(messages)
	return nil
}

func encodeAudit(audit []state.AuditEntry) []types.AttributeValue {
	lines := make([]types.AttributeValue, len(audit))
	for i, a := range audit {
		lines[i] = str(encodeJSON(toAudit(a)))
	}
	return lines
}

// retentionSeconds is a retention as it is stored. Part of a second counts as a whole one.
func retentionSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// shard is the partition of the open index that the run goes into.
func (s *Store) shard(key string) int64 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int64(h.Sum32() % uint32(s.shards))
}

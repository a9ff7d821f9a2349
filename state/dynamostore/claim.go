package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Claim hands out due messages of the runs in the open index, going on where the last Claim of this store has stopped;
// see [outbox.Source]. It reads the header of each open run that it passes. Each run costs a write, so a slow table could
// take a lease's whole time for the claims alone: with some in hand, it stops when half of it has passed. ErrUnsupported on
// a store made WithoutIndex.
func (s *Store) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	if !s.indexed {
		return nil, s.unsupported("Claim", " without the index")
	}
	if limit <= 0 {
		return nil, nil
	}
	c := &claimer{s: s, limit: limit, left: limit, lease: lease, enough: s.clock.Mono() + lease/2}
	at := s.sweep.get()
	if at.shard >= s.listed() {
		at = position{}
	}
	err := c.round(ctx, at)
	if len(c.batches) > 0 {
		return c.batches, nil // what is claimed is to be sent, whatever happened after it
	}
	return nil, err
}

type claimer struct {
	s       *Store
	limit   int
	left    int
	lease   time.Duration
	enough  time.Duration // when to stop, by the monotonic clock: what is claimed has to be sent too
	batches []outbox.Batch
}

// full tells whether nothing more is to be claimed.
func (c *claimer) full() bool {
	return c.left == 0 || len(c.batches) > 0 && c.s.clock.Mono() >= c.enough
}

// round goes once around the index, or until nothing more may be taken.
func (c *claimer) round(ctx context.Context, start position) error {
	wrapped := start == position{}
	for at := start; !c.full(); {
		next, end, err := c.s.walk(ctx, "claim", at, batchSize, func(h *header, it item) (bool, error) {
			if c.full() {
				return false, nil
			}
			return true, c.visit(ctx, h, it)
		})
		if err != nil {
			return err
		}
		c.s.sweep.set(next)
		switch {
		case end && wrapped, wrapped && !end && start != position{} && !next.before(start):
			return nil
		case end:
			wrapped = true
		}
		at = next
	}
	return nil
}

// before tells whether entries that were behind p, and in front of start, may be left.
func (p position) before(start position) bool {
	switch {
	case p.shard != start.shard:
		return p.shard < start.shard
	case start.key == "":
		return false
	case p.key == "":
		return true
	}
	created, _ := strconv.ParseInt(p.created, 10, 64)
	until, _ := strconv.ParseInt(start.created, 10, 64)
	return created < until || created == until && p.key != start.key
}

func (c *claimer) visit(ctx context.Context, h *header, it item) error {
	s, now := c.s, c.s.clock.Now()
	if len(h.messages) == 0 {
		if h.rec.Status.Ended() {
			return s.settle(ctx, h, it)
		}
		return nil
	}
	due := len(h.rec.Outbox.Due(now))
	if due == 0 || min(due, c.limit) > c.left {
		return nil
	}
	token := rand.Text()
	after, err := s.claim(ctx, h, token, now.Add(c.lease))
	if after == nil || err != nil {
		return err
	}
	batch, err := s.batch(ctx, after, token, c.left)
	if err != nil || len(batch.Messages) == 0 {
		// Another relay need not wait for the lease to lapse.
		release := s.Sent(ctx, outbox.Batch{RunKey: h.rec.Key, Token: token}, nil)
		if errors.Is(release, outbox.ErrClaimLost) {
			release = nil
		}
		return errors.Join(err, release)
	}
	c.left -= len(batch.Messages)
	c.batches = append(c.batches, batch)
	return nil
}

// claim puts the run's outbox under a claim, if it is still as it was read, and returns the header after that; nil when
// someone else was quicker.
func (s *Store) claim(ctx context.Context, h *header, token string, until time.Time) (*header, error) {
	n, e := &s.names, newExpression()
	e.name("#ob", n.Outbox)
	path := "#ob." + e.name("#t", claimToken)
	e.set(path, e.value(":t", str(token)))
	e.set("#ob."+e.name("#ut", claimUntil), e.value(":ut", num(until.UnixMilli())))
	e.where("attribute_exists(#ob)")
	if old := h.rec.Outbox.Token; old == "" {
		e.where("attribute_not_exists(" + path + ")")
	} else {
		e.where(path + "=" + e.value(":old", str(old)))
	}
	after, refusal, old, err := s.update(ctx, "claim", h.rec.Key, e, types.ReturnValueAllNew)
	switch {
	case err != nil:
		return nil, err
	case refusal && old == nil:
		return nil, nil
	case refusal:
		after = old
	}
	now, err := s.decodeHeader(after)
	if err != nil || now.rec.Outbox.Token != token { // the token is there when an answer was lost
		return nil, err
	}
	return now, nil
}

// batch is what a relay gets under its claim: at most limit messages, bodies included.
func (s *Store) batch(ctx context.Context, h *header, token string, limit int) (outbox.Batch, error) {
	b := outbox.Batch{RunKey: h.rec.Key, Token: token}
	var refs []ref
	for i := range h.messages {
		m := &h.messages[i]
		if m.Parked != "" || len(b.Messages) == limit {
			break
		}
		b.Messages = append(b.Messages, m.Message)
		if m.body.sibling {
			at := len(b.Messages) - 1
			refs = append(refs, ref{part: m.body.part(messagePart(m.seq)), what: m.ID, fill: func(raw []byte) { b.Messages[at].Body = raw }})
		}
	}
	if len(refs) == 0 {
		return b, nil
	}
	missing, err := s.fill(ctx, "claim", b.RunKey, refs)
	if err != nil || len(missing) == 0 {
		return b, err
	}
	// It will never be sendable: set it aside, where an operator sees it.
	return outbox.Batch{}, s.Park(ctx, b, missing[0].what, "the item with the body has expired or was deleted")
}

// settle closes a run that has ended and has nothing left to send: its index entry goes, its expiry comes.
func (s *Store) settle(ctx context.Context, h *header, it item) error {
	n, e := &s.names, newExpression()
	keys := len((&reader{it: it}).mapOf(n.Outbox))
	e.name("#os", n.OpenShard)
	e.remove("#os")
	e.where("#s=" + e.value(":s", str(string(h.rec.Status))))
	e.name("#s", n.Status)
	e.where("size(" + e.name("#ob", n.Outbox) + ")=" + e.value(":keys", num(int64(keys))))
	if h.rec.Settle(s.clock.Now()) {
		e.set(e.name("#e", n.Expiration), e.value(":e", num(h.rec.ExpiresAt.Unix())))
	}
	_, _, _, err := s.update(ctx, "close", h.rec.Key, e, types.ReturnValueNone)
	return err // refused: it is not as it was, and the next one who comes by sees to it
}

// settleQuietly is settle for callers who have come for something else. What fails is done by the next who comes by.
func (s *Store) settleQuietly(ctx context.Context, h *header, it item) {
	if len(h.messages) == 0 {
		_ = s.settle(ctx, h, it)
	}
}

package sqlite

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

const (
	// due is true of runs with messages to send that no relay holds.
	due = `o.relay = '` + relaySend + `' AND (o.token = '' OR o.claimed_until IS NULL OR o.claimed_until <= ?1)`

	selectDue = `SELECT ` + columns + ` FROM run_outbox o JOIN run_record r USING (id) JOIN run_about a USING (id)
  WHERE ` + due + ` AND (r.expiration IS NULL OR r.expiration > ?2) ORDER BY o.id`
	selectAnyDue = `SELECT EXISTS (SELECT 1 FROM run_outbox o WHERE ` + due + `) OR EXISTS (SELECT 1 FROM run_outbox WHERE relay = '` + relaySettle + `')`

	settleRuns = `UPDATE run_record SET expiration = ?1 + (SELECT retention FROM run_about a WHERE a.id = run_record.id)
  WHERE id IN (SELECT id FROM run_outbox WHERE relay = '` + relaySettle + `')`
	settled = `DELETE FROM run_outbox WHERE relay = '` + relaySettle + `' AND token = '' AND claimed_until IS NULL`
	seen    = `UPDATE run_outbox SET relay = NULL WHERE relay = '` + relaySettle + `'`

	claimRun     = `UPDATE run_outbox SET token = ?2, claimed_until = ?3 WHERE id = ?1`
	selectParked = `SELECT ` + columns + ` FROM run_outbox o JOIN run_record r USING (id) JOIN run_about a USING (id)
  WHERE o.parked AND o.id > ?1 AND (r.expiration IS NULL OR r.expiration > ?3) ORDER BY o.id LIMIT ?2`

	// claimMisses is how many runs with more messages than are left to hand out Claim passes over.
	claimMisses = 64
)

// Claim hands out due messages, those of the oldest runs first, and closes ended runs with nothing left to send; see
// [outbox.Source].
func (s *Store) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	idle, err := s.nothingDue(ctx)
	if err != nil {
		return nil, s.readFailed("Claim", "", err)
	}
	if idle {
		return nil, nil
	}
	var batches []outbox.Batch
	var unread unreadable
	err = s.write(ctx, "Claim", "", func(tx *tx) (answer, err error) {
		batches, unread = nil, nil
		if err := settle(tx); err != nil {
			return nil, err
		}
		rows, answer, err := claimable(tx, limit, func(r *row) ([]*row, error) { return unread.sift([]*row{r}, s.unreadable != nil) })
		if answer != nil || err != nil {
			return answer, err
		}
		batches, err = claim(tx, rows, limit, lease)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	unread.tell(s.unreadable)
	return batches, nil
}

// nothingDue looks without writing, since relays ask much more often than there is something.
func (s *Store) nothingDue(ctx context.Context) (idle bool, err error) {
	err = s.readers.with(ctx, func(c conn) error {
		q, err := c.Prepare(selectAnyDue)
		if err != nil {
			return err
		}
		now := s.clock.Now()
		q.BindInt64(1, now.UnixMilli())
		found, err := q.Step()
		idle = found && !q.ColumnBool(0)
		return done(q, err)
	})
	return idle, err
}

// settle gives the runs that lack an expiry, and nothing else, theirs.
func settle(tx *tx) error {
	if err := tx.exec(settleRuns, func(b *binder) { b.second(tx.now) }); err != nil {
		return err
	}
	if err := tx.exec(settled, func(*binder) {}); err != nil {
		return err
	}
	return tx.exec(seen, func(*binder) {})
}

// claim puts the runs under claims.
func claim(tx *tx, rows []*row, limit int, lease time.Duration) (batches []outbox.Batch, err error) {
	for _, r := range rows {
		due := r.rec.Outbox.Sendable()
		b := outbox.Batch{RunKey: r.rec.Key, Token: rand.Text(), Messages: due[:min(len(due), limit)]}
		err := tx.exec(claimRun, func(bind *binder) {
			bind.int(r.id)
			bind.text(b.Token)
			bind.time(tx.now.Add(lease))
		})
		if err != nil {
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// claimable are due runs whose messages come to no more than limit. What sift leaves out doesn't count, so that it never
// stands in the way of those behind it.
func claimable(tx *tx, limit int, sift func(*row) ([]*row, error)) (rows []*row, answer, err error) {
	s, err := tx.c.Prepare(selectDue)
	if err != nil {
		return nil, nil, err
	}
	s.BindInt64(1, tx.now.UnixMilli())
	s.BindInt64(2, tx.now.Unix())
	left, misses := limit, 0
	for left > 0 && misses < claimMisses {
		found, err := s.Step()
		if err != nil || !found {
			return rows, nil, done(s, err)
		}
		r := scan(s)
		n := min(countSendable(r.messages), limit)
		if n > left {
			misses++
			continue
		}
		if err := r.loadPayloads(tx.c); err != nil {
			return nil, nil, done(s, err)
		}
		readable, answer := sift(r)
		if answer != nil {
			return nil, answer, done(s, nil)
		}
		if len(readable) > 0 {
			left -= n
			rows = append(rows, r)
		}
	}
	return rows, nil, done(s, nil)
}

// countSendable counts the log's entries up to the first parked one.
func countSendable(log []byte) (n int) {
	for p := (parser{b: log}); p.i < len(log); n++ {
		p.expect(',')
		if m, _ := p.message(); p.err != nil || m.Parked != "" {
			break
		}
	}
	return n
}

// Sent removes messages that have been sent; see [outbox.Source].
func (s *Store) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	return s.held(ctx, "Sent", b, func(o *state.Outbox) error { return o.Sent(b, ids) })
}

// Park sets a message aside; see [outbox.Source].
func (s *Store) Park(ctx context.Context, b outbox.Batch, id, reason string) error {
	return s.held(ctx, "Park", b, func(o *state.Outbox) error { return o.Park(b, id, reason) })
}

func (s *Store) held(ctx context.Context, op string, b outbox.Batch, do func(*state.Outbox) error) error {
	return s.write(ctx, op, b.RunKey, func(tx *tx) (answer, err error) {
		r, answer, err := tx.load(b.RunKey)
		if answer != nil || err != nil {
			return answer, err
		}
		if r == nil {
			return fmt.Errorf("the record is gone: %w", outbox.ErrClaimLost), nil
		}
		if answer := do(&r.rec.Outbox); answer != nil {
			return answer, nil
		}
		r.rec.Settle(tx.now)
		return nil, tx.rewrite(r)
	})
}

// Parked lists parked messages by the age of their runs. A page holds all those of a run, and so may be longer than
// [state.DefaultPage]; see [outbox.Source].
func (s *Store) Parked(ctx context.Context, cursor string) (msgs []outbox.Message, next string, err error) {
	after, err := position(cursor)
	if err != nil {
		return nil, "", s.failed("Parked", "", err)
	}
	var rows []*row
	err = s.readers.snapshot(ctx, func(c conn) error {
		q, err := c.Prepare(selectParked)
		if err != nil {
			return err
		}
		if rows, next, err = parkedRows(q, after, s.clock.Now().Unix()); err != nil {
			return err
		}
		return loadAll(c, rows)
	})
	if err != nil {
		return nil, "", s.readFailed("Parked", "", err)
	}
	if rows, err = s.sift("Parked", rows); err != nil {
		return nil, "", err
	}
	for _, r := range rows {
		for _, m := range r.rec.Outbox.Messages {
			if m.Parked != "" {
				msgs = append(msgs, m.Message)
			}
		}
	}
	return msgs, next, nil
}

// parkedRows are the runs of a page; each has a parked message at least.
func parkedRows(q *sqlite.Stmt, after, now int64) (rows []*row, next string, err error) {
	q.BindInt64(1, after)
	q.BindInt64(2, state.DefaultPage+1)
	q.BindInt64(3, now)
	for {
		found, err := q.Step()
		if err != nil || !found {
			return rows, "", done(q, err)
		}
		if len(rows) == state.DefaultPage {
			return rows, strconv.FormatInt(rows[len(rows)-1].id, 10), done(q, nil)
		}
		rows = append(rows, scan(q))
	}
}

// Unpark ends the parking of a message; see [outbox.Source].
func (s *Store) Unpark(ctx context.Context, id string, resend bool, note string) error {
	key, ok := state.MessageRun(id)
	if !ok {
		return s.failed("Unpark", id, outbox.ErrNotParked)
	}
	actor := state.Actor(ctx)
	return s.write(ctx, "Unpark", key, func(tx *tx) (answer, err error) {
		r, answer, err := tx.load(key)
		if answer != nil || err != nil {
			return answer, err
		}
		if r == nil {
			return fmt.Errorf("message %s: %w", id, outbox.ErrNotParked), nil
		}
		if answer := r.rec.Outbox.Unpark(id, resend); answer != nil {
			return answer, nil
		}
		r.rec.Audit = append(r.rec.Audit, state.UnparkAudit(actor, id, resend, note, tx.now))
		r.rec.Settle(tx.now)
		return nil, tx.rewrite(r)
	})
}

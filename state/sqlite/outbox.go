package sqlite

import "github.com/tsuzuki-go/tsuzuki/state"

const (
	putOutbox    = `INSERT OR REPLACE INTO run_outbox (id, relay, parked, token, claimed_until, messages) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`
	deleteOutbox = `DELETE FROM run_outbox WHERE id = ?1`

	// appendOutbox adds messages to those there are. Behind a parked one they are held with it.
	appendOutbox = `INSERT INTO run_outbox (id, relay, parked, token, messages) VALUES (?1, '` + relaySend + `', 0, '', ?2)
  ON CONFLICT (id) DO UPDATE SET relay = CASE WHEN messages = '' THEN excluded.relay ELSE relay END, messages = messages || excluded.messages`

	// settleLater puts a run before the relay that has ended without an expiry, unless it is there for its messages.
	settleLater = `INSERT INTO run_outbox (id, relay, parked, token, messages) VALUES (?1, '` + relaySettle + `', 0, '', '')
  ON CONFLICT (id) DO UPDATE SET relay = CASE WHEN messages = '' THEN excluded.relay ELSE relay END`
)

// relayOf is what the relay has to do with a run; empty: nothing.
func relayOf(r *state.Record) string {
	switch {
	case len(r.Outbox.Messages) > 0 && r.Outbox.Messages[0].Parked == "":
		return relaySend
	case len(r.Outbox.Messages) > 0:
		return relayHeld
	case unsettled(r.Status, r.ExpiresAt.IsZero(), r.Retention > 0):
		return relaySettle
	}
	return ""
}

func unsettled(status state.Status, unending, retained bool) bool {
	return status.Ended() && unending && retained
}

func parked(r *state.Record) bool {
	for i := range r.Outbox.Messages {
		if r.Outbox.Messages[i].Parked != "" {
			return true
		}
	}
	return false
}

// outbox writes the run's row of run_outbox, if it is to have one; had tells that there may be one.
func (t *tx) outbox(id int64, rec *state.Record, e *encoded, had bool) error {
	relay := relayOf(rec)
	if relay == "" && rec.Outbox.Token == "" && rec.Outbox.ClaimedUntil.IsZero() {
		if !had {
			return nil
		}
		return t.exec(deleteOutbox, func(b *binder) { b.int(id) })
	}
	return t.exec(putOutbox, func(b *binder) {
		b.int(id)
		b.orNull(relay)
		b.flag(parked(rec))
		b.text(rec.Outbox.Token)
		b.time(rec.Outbox.ClaimedUntil)
		e.bind(b, e.sends)
	})
}

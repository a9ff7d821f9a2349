package sqlite

import (
	"bytes"
	"time"

	"zombiezen.com/go/sqlite"
)

const (
	updateRecord = `UPDATE run_record SET owner = ?2, revision = ?3, status = ?4, cancel = ?5, expiration = ?6, head = ?7, steps = ?8,
  response_data = ?9 WHERE id = ?1`
	updateAbout = `UPDATE run_about SET plan = ?2, step_count = ?3, pivot = ?4, payloads = ?5, audit = ?6 WHERE id = ?1`

	putPayload    = `INSERT OR REPLACE INTO run_payload (id, part, data) VALUES (?1, ?2, ?3)`
	hasPayloads   = `UPDATE run_about SET payloads = 1 WHERE id = ?1 AND payloads = 0`
	deletePayload = `DELETE FROM run_payload WHERE id = ?1 AND part = ?2`
	selectID      = `SELECT id FROM run_record WHERE idempotency_key = ?1`
)

// tables hold the rows of a run.
var tables = []string{"run_payload", "run_outbox", "run_about", "run_record"}

// tx is what a task sees of the transaction that it is in.
type tx struct {
	c         conn
	now       time.Time
	maxRecord int

	begin, commit, rollback *sqlite.Stmt
	insertRecord            *sqlite.Stmt
	insertAbout             *sqlite.Stmt
	commits                 [len(commitStatements)]*sqlite.Stmt
	enc                     encoded // for what the committer has to encode itself
}

func newTx(c conn, maxRecord int) (*tx, error) {
	t := &tx{c: c, maxRecord: maxRecord}
	prepare := map[string]**sqlite.Stmt{
		`BEGIN IMMEDIATE`: &t.begin, `COMMIT`: &t.commit, `ROLLBACK`: &t.rollback,
		insertRecord: &t.insertRecord, insertAbout: &t.insertAbout,
	}
	for i, query := range commitStatements {
		prepare[query] = &t.commits[i]
	}
	for query, into := range prepare {
		s, err := c.Prepare(query)
		if err != nil {
			return nil, err
		}
		*into = s
	}
	return t, nil
}

// load reads the run with that key, whole; nil if there is none, or if it has expired. A record that can't be read is an
// answer, not SQLite's trouble.
func (t *tx) load(key string) (r *row, answer, err error) {
	r, err = find(t.c, key)
	if err != nil || r == nil || r.rec.Expired(t.now) {
		return nil, nil, err
	}
	if err := r.loadPayloads(t.c); err != nil {
		return nil, nil, err
	}
	if answer := r.decode(); answer != nil {
		return nil, answer, nil
	}
	return r, nil, nil
}

// exec runs a statement that is used seldom.
func (t *tx) exec(query string, bind func(b *binder)) error {
	s, err := t.c.Prepare(query)
	if err != nil {
		return err
	}
	bind(&binder{s: s})
	return run(s)
}

// id of the run with that key; 0: there is none.
func (t *tx) id(key string) (id int64, err error) {
	s, err := t.c.Prepare(selectID)
	if err != nil {
		return 0, err
	}
	s.BindText(1, key)
	found, err := s.Step()
	if found {
		id = s.ColumnInt64(0)
	}
	return id, done(s, err)
}

func (t *tx) remove(id int64) error {
	for _, table := range tables {
		if err := t.exec(`DELETE FROM `+table+` WHERE id = ?1`, func(b *binder) { b.int(id) }); err != nil {
			return err
		}
	}
	return nil
}

// put writes payloads that are too long for the run's own rows.
func (t *tx) put(id int64, large []payload) error {
	for _, p := range large {
		err := t.exec(putPayload, func(b *binder) {
			b.int(id)
			b.text(p.part)
			b.data(p.data)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rewrite stores r.rec in place of what r was read from, with its logs written anew. What a run is born with stays.
func (t *tx) rewrite(r *row) error {
	rec, e := r.rec, &t.enc
	e.record(rec)
	err := t.exec(updateRecord, func(b *binder) {
		b.int(r.id)
		b.text(rec.Owner)
		b.int(rec.Revision)
		b.text(string(rec.Status))
		e.bind(b, e.cancelled)
		b.second(rec.ExpiresAt)
		e.bind(b, e.header)
		e.bind(b, e.log)
		b.bytes(e.response)
	})
	if err != nil {
		return err
	}
	keep, err := t.replacePayloads(r, e.large)
	if err != nil {
		return err
	}
	err = t.exec(updateAbout, func(b *binder) {
		b.int(r.id)
		e.bind(b, e.plan)
		b.int(int64(len(rec.Steps)))
		b.text(rec.Pivot)
		b.flag(keep)
		e.bind(b, e.audits)
	})
	if err != nil {
		return err
	}
	return t.outbox(r.id, rec, e, r.hasOutbox)
}

// replacePayloads writes those that are new, and removes those that are no more, but for the input, which never changes.
// some tells whether there are any.
func (t *tx) replacePayloads(r *row, large []payload) (some bool, err error) {
	keep := map[string]bool{}
	if r.payloads[partInput] != nil {
		keep[partInput] = true
	}
	for _, p := range large {
		keep[p.part] = true
		if old, ok := r.payloads[p.part]; ok && bytes.Equal(old, p.data) {
			continue
		}
		if err := t.put(r.id, []payload{p}); err != nil {
			return false, err
		}
	}
	for part := range r.payloads {
		if keep[part] {
			continue
		}
		err := t.exec(deletePayload, func(b *binder) {
			b.int(r.id)
			b.text(part)
		})
		if err != nil {
			return false, err
		}
	}
	return len(keep) > 0, nil
}

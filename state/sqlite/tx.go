package sqlite

import (
	"bytes"
	"time"

	"zombiezen.com/go/sqlite"
)

const (
	putPayload     = `INSERT OR REPLACE INTO run_payload (run, part, data) VALUES (?1, ?2, ?3)`
	deletePayload  = `DELETE FROM run_payload WHERE run = ?1 AND part = ?2`
	selectID       = `SELECT id FROM run_record WHERE idempotency_key = ?1`
	deletePayloads = `DELETE FROM run_payload WHERE run = ?1`
	deleteRun      = `DELETE FROM run_record WHERE id = ?1`
)

// tx is what a task sees of the transaction that it is in.
type tx struct {
	c         conn
	now       time.Time
	maxRecord int

	begin, commit, rollback, insert, update *sqlite.Stmt
	commits                                 [len(commitStatements)]*sqlite.Stmt
	enc                                     encoded // for what the committer has to encode itself
}

func newTx(c conn, maxRecord int) (*tx, error) {
	t := &tx{c: c, maxRecord: maxRecord}
	prepare := map[string]**sqlite.Stmt{
		`BEGIN IMMEDIATE`: &t.begin, `COMMIT`: &t.commit, `ROLLBACK`: &t.rollback, insertRun: &t.insert, updateRun: &t.update,
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

// id of the run with that key, which must be there.
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
	for _, query := range []string{deletePayloads, deleteRun} {
		if err := t.exec(query, func(b *binder) { b.int(id) }); err != nil {
			return err
		}
	}
	return nil
}

// put writes payloads that are too long for the run's row.
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

// rewrite stores r.rec in place of what r was read from, with its logs written anew. The input never changes.
func (t *tx) rewrite(r *row) error {
	t.enc.record(r.rec)
	keep := map[string]bool{}
	if r.payloads[partInput] != nil {
		keep[partInput] = true
	}
	for _, p := range t.enc.large {
		keep[p.part] = true
	}
	b := binder{s: t.update}
	t.enc.later(&b, r.rec, r.rec.Size(), len(keep) > 0)
	b.int(r.id)
	if err := run(t.update); err != nil {
		return err
	}
	for _, p := range t.enc.large {
		if old, ok := r.payloads[p.part]; ok && bytes.Equal(old, p.data) {
			continue
		}
		if err := t.put(r.id, []payload{p}); err != nil {
			return err
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
			return err
		}
	}
	return nil
}

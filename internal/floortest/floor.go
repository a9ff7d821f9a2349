// Package floortest is what benchmarks measure the library against: the least that a hand-written program does that keeps
// its runs in SQLite. A run of five steps is one insert and five conditional updates, each durable before the next, with the
// driver and the durability of package sqlite, and, where several run at once, the same group commit. It has no lease, no
// index of open runs, and nothing that a person could look into.
package floortest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
)

// Steps is how many steps a run has.
const Steps = 5

// Output is the result of a step: about 60 bytes of JSON.
func Output(id string, i int) []byte {
	return fmt.Appendf(nil, `{"order":"%s","step":%d,"amount":%d,"state":"ok"}`, id, i, 1000+7*i)
}

// gatherFor is how long the committer waits for the writers of its last round.
const gatherFor = 300 * time.Microsecond

// floor is the program.
type floor struct {
	mu             sync.Mutex
	c              *sqlite.Conn
	begin, commit  *sqlite.Stmt
	insert, update *sqlite.Stmt
	forget         *sqlite.Stmt
	ops            chan *op // nil without group commit
	ended          sync.WaitGroup
}

// op is one write.
type op struct {
	id            string
	version       int64
	status, stamp int64
	doc           []byte
	err           error
	ready         chan struct{}
}

func open(path string, group bool) (*floor, error) {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	f := &floor{c: c}
	for _, q := range []string{
		`PRAGMA journal_mode = WAL`, `PRAGMA synchronous = FULL`,
		`CREATE TABLE runs (id TEXT PRIMARY KEY, version INTEGER NOT NULL, status INTEGER NOT NULL, updated INTEGER NOT NULL, doc TEXT NOT NULL) WITHOUT ROWID`,
	} {
		if err := exec(c.Prep(q)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	f.begin, f.commit = c.Prep(`BEGIN IMMEDIATE`), c.Prep(`COMMIT`)
	f.insert = c.Prep(`INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING`)
	f.update = c.Prep(`UPDATE runs SET version = ?2, status = ?3, updated = ?4, doc = ?5 WHERE id = ?1 AND version = ?2 - 1`)
	f.forget = c.Prep(`PRAGMA shrink_memory`)
	if group {
		f.ops = make(chan *op, 1024)
		f.ended.Go(f.committer)
	}
	return f, nil
}

func (f *floor) close() error {
	if f.ops != nil {
		close(f.ops)
		f.ended.Wait()
	}
	return f.c.Close()
}

func exec(s *sqlite.Stmt) error {
	_, err := s.Step()
	return errors.Join(err, s.Reset())
}

// committer shares a commit among all that are there and the writers of the last round.
func (f *floor) committer() {
	var batch []*op
	expected := 0
	for o := range f.ops {
		batch = append(batch[:0], o)
		for start := time.Now(); len(f.ops)+1 < expected && time.Since(start) < gatherFor; {
			runtime.Gosched()
		}
		for len(f.ops) > 0 {
			batch = append(batch, <-f.ops)
		}
		err := exec(f.begin)
		for _, o := range batch {
			o.err = errors.Join(err, f.write(o))
		}
		err = exec(f.commit)
		expected = len(batch) + len(f.ops)
		for _, o := range batch {
			o.err = errors.Join(o.err, err)
			o.ready <- struct{}{}
		}
	}
}

func (f *floor) write(o *op) error {
	s := f.update
	if o.version == 1 {
		s = f.insert
	}
	s.BindText(1, o.id)
	s.BindInt64(2, o.version)
	s.BindInt64(3, o.status)
	s.BindInt64(4, o.stamp)
	s.BindText(5, string(o.doc))
	if err := exec(s); err != nil {
		return err
	}
	if f.c.Changes() != 1 {
		return errors.New("refused")
	}
	return nil
}

func (f *floor) put(o *op) error {
	o.version++
	o.stamp = time.Now().UnixMilli()
	if f.ops != nil {
		f.ops <- o
		<-o.ready
		return o.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(o)
}

// run makes the run of this ID.
func (f *floor) run(id string) error {
	o := &op{id: "tenant-a#create_order#" + id, status: 1, doc: []byte(`{"input":{"order":"` + id + `","amount":4200}}`), ready: make(chan struct{}, 1)}
	if err := f.put(o); err != nil {
		return err
	}
	for i := range Steps {
		o.doc = append(append(o.doc, '\n'), Output(id, i)...)
		if i == Steps-1 {
			o.status = 2
		}
		if err := f.put(o); err != nil {
			return err
		}
	}
	return nil
}

package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// The workload: runs of five steps with results of about 60 bytes of JSON, each write durable before the next. The floor
// is the least that a program does which keeps a run in SQLite: one insert and five conditional updates, with the same
// driver and durability, and, where several run at once, the same group commit.

const benchSteps = 5

func benchOutput(id string, i int) []byte {
	return fmt.Appendf(nil, `{"order":"%s","step":%d,"amount":%d,"state":"ok"}`, id, i, 1000+7*i)
}

// BenchmarkRuns measures each by itself.
func BenchmarkRuns(b *testing.B) {
	for _, concurrent := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("floor/%d", concurrent), func(b *testing.B) { measure(b, concurrent, openFloor(b, concurrent > 1)) })
		b.Run(fmt.Sprintf("store/%d", concurrent), func(b *testing.B) { measure(b, concurrent, openStore(b)) })
	}
}

// BenchmarkStoreToFloor has them take turns, since a disk that others use too is now fast and now slow, and reports the
// median of the store's runs per second as a part of the floor's. With one run at a time the floor does without group
// commit.
func BenchmarkStoreToFloor(b *testing.B) {
	for _, concurrent := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(concurrent), func(b *testing.B) {
			floor, store := openFloor(b, concurrent > 1), openStore(b)
			slice := 20 * concurrent
			var ratios []float64
			b.ResetTimer()
			for i := range b.N {
				f := drive(b, concurrent, i*slice, slice, floor)
				s := drive(b, concurrent, i*slice, slice, store)
				ratios = append(ratios, f.Seconds()/s.Seconds())
			}
			slices.Sort(ratios)
			b.ReportMetric(100*ratios[len(ratios)/2], "%-of-floor")
		})
	}
}

func measure(b *testing.B, concurrent int, run func(id string) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	drive(b, concurrent, 0, b.N, run)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/run")
}

// drive has so many goroutines make n runs.
func drive(b *testing.B, concurrent, from, n int, run func(id string) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range concurrent {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				if err := run("order-" + strconv.Itoa(10_000_000+from+i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func openFloor(b *testing.B, group bool) func(id string) error {
	b.Helper()
	return newFloor(b, filepath.Join(b.TempDir(), "floor.db"), group).run
}

func openStore(b *testing.B) func(id string) error {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return func(id string) error { return storeRun(b, s, id) }
}

var benchPlan = []string{"reserve_stock", "charge_card", "grant_points", "notify", "close"}

func benchRecord(id string, now time.Time) *state.Record {
	rec := &state.Record{
		Key: "tenant-a#create_order#" + id, Operation: "create_order", Version: 1, Plan: benchPlan, Retention: 720 * time.Hour,
		Status: state.StatusInProgress, CurrentStep: benchPlan[0], Steps: make([]state.StepRecord, benchSteps),
		PayloadHash: "1:3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea", Input: []byte(`{"order":"` + id + `","amount":4200}`),
		Owner: "3QWPVMGMF5JHZTXHOPZIOWQ4UE", WriteID: "Q6BFDPUQBK7VXKDJUK7B5O2WY4", Runs: 1, LeaseUntil: now.Add(30 * time.Second),
		Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
	for i := range rec.Steps {
		rec.Steps[i] = state.StepRecord{Name: benchPlan[i], Status: state.StepPending}
	}
	return rec
}

func storeRun(b *testing.B, s *sqlite.Store, id string) error {
	b.Helper()
	now := time.Now()
	rec := benchRecord(id, now)
	if existing, err := s.Create(b.Context(), rec); existing != nil || err != nil {
		return errors.Join(err, errors.New("not created"))
	}
	for i := range benchSteps {
		now = time.Now()
		ch := &state.Change{
			Key: rec.Key, IfOwner: rec.Owner, IfRevision: int64(i + 1), IfNoCancel: true, WriteID: rec.WriteID, Owner: rec.Owner, Runs: 1,
			Status: state.StatusInProgress, LeaseUntil: now.Add(30 * time.Second), UpdatedAt: now,
			Steps: []state.StepChange{{Index: i, StepRecord: state.StepRecord{
				Name: benchPlan[i], Status: state.StepDone, Attempts: 1, Output: benchOutput(id, i), StartedAt: now, EndedAt: now,
			}}},
		}
		if i == benchSteps-1 {
			ch.Status, ch.Owner, ch.LeaseUntil, ch.ExpiresAt = state.StatusCompleted, "", time.Time{}, now.Add(rec.Retention)
			ch.Response = ch.Steps[0].Output
		} else {
			ch.CurrentStep = benchPlan[i+1]
		}
		if err := s.Commit(b.Context(), ch); err != nil {
			return err
		}
	}
	return nil
}

// floor is the hand-written program.
type floor struct {
	mu             sync.Mutex
	c              *zombiezen.Conn
	begin, commit  *zombiezen.Stmt
	insert, update *zombiezen.Stmt
	ops            chan *floorOp // nil without group commit
}

type floorOp struct {
	id            string
	version       int64
	status, stamp int64
	doc           []byte
	err           error
	ready         chan struct{}
}

func newFloor(b *testing.B, path string, group bool) *floor {
	b.Helper()
	c, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		b.Fatal(err)
	}
	f := &floor{c: c}
	for _, q := range []string{
		`PRAGMA journal_mode = WAL`, `PRAGMA synchronous = FULL`,
		`CREATE TABLE runs (id TEXT PRIMARY KEY, version INTEGER NOT NULL, status INTEGER NOT NULL, updated INTEGER NOT NULL, doc TEXT NOT NULL) WITHOUT ROWID`,
	} {
		if err := f.exec(c.Prep(q)); err != nil {
			b.Fatal(err)
		}
	}
	f.begin, f.commit = c.Prep(`BEGIN IMMEDIATE`), c.Prep(`COMMIT`)
	f.insert = c.Prep(`INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING`)
	f.update = c.Prep(`UPDATE runs SET version = ?2, status = ?3, updated = ?4, doc = ?5 WHERE id = ?1 AND version = ?2 - 1`)
	var wg sync.WaitGroup
	if group {
		f.ops = make(chan *floorOp, 1024)
		wg.Go(f.committer)
	}
	b.Cleanup(func() {
		if group {
			close(f.ops)
			wg.Wait()
		}
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return f
}

func (f *floor) exec(s *zombiezen.Stmt) error {
	_, err := s.Step()
	return errors.Join(err, s.Reset())
}

// committer shares a commit among all that are there, and waits up to 300 µs for those of the last round.
func (f *floor) committer() {
	var batch []*floorOp
	expected := 0
	for op := range f.ops {
		batch = append(batch[:0], op)
		for start := time.Now(); len(f.ops)+1 < expected && time.Since(start) < 300*time.Microsecond; {
			runtime.Gosched()
		}
		for len(f.ops) > 0 {
			batch = append(batch, <-f.ops)
		}
		err := f.exec(f.begin)
		for _, op := range batch {
			op.err = errors.Join(err, f.write(op))
		}
		err = f.exec(f.commit)
		expected = len(batch) + len(f.ops)
		for _, op := range batch {
			op.err = errors.Join(op.err, err)
			op.ready <- struct{}{}
		}
	}
}

func (f *floor) write(op *floorOp) error {
	s := f.update
	if op.version == 1 {
		s = f.insert
	}
	s.BindText(1, op.id)
	s.BindInt64(2, op.version)
	s.BindInt64(3, op.status)
	s.BindInt64(4, op.stamp)
	s.BindText(5, string(op.doc))
	if err := f.exec(s); err != nil {
		return err
	}
	if f.c.Changes() != 1 {
		return errors.New("refused")
	}
	return nil
}

func (f *floor) put(op *floorOp) error {
	op.version++
	op.stamp = time.Now().UnixMilli()
	if f.ops != nil {
		f.ops <- op
		<-op.ready
		return op.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(op)
}

func (f *floor) run(id string) error {
	op := &floorOp{id: "tenant-a#create_order#" + id, status: 1, doc: []byte(`{"input":{"order":"` + id + `","amount":4200}}`), ready: make(chan struct{}, 1)}
	if err := f.put(op); err != nil {
		return err
	}
	for i := range benchSteps {
		op.doc = append(append(op.doc, '\n'), benchOutput(id, i)...)
		if i == benchSteps-1 {
			op.status = 2
		}
		if err := f.put(op); err != nil {
			return err
		}
	}
	return nil
}

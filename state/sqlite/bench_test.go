package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/floortest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// The workload: runs of five steps with results of about 60 bytes of JSON, each write durable before the next, written by
// the store alone, without the engine. Package floortest is what it is measured against.

// BenchmarkRuns measures each by itself.
func BenchmarkRuns(b *testing.B) {
	for _, concurrent := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("floor/%d", concurrent), func(b *testing.B) { measure(b, concurrent, floortest.Floor(b, concurrent)) })
		b.Run(fmt.Sprintf("store/%d", concurrent), func(b *testing.B) { measure(b, concurrent, openStore(b)) })
	}
}

// BenchmarkStoreToFloor has them take turns.
func BenchmarkStoreToFloor(b *testing.B) {
	for _, ids := range floortest.Orders {
		for _, concurrent := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", ids.Name, concurrent), func(b *testing.B) {
				floortest.Ratio(b, concurrent, ids.IDs, openStore(b))
			})
		}
	}
}

// BenchmarkWritesAfterLists tells how much more processor time a run takes when all readers have gone through more than
// their share of the page cache holds, and nobody reads any more.
func BenchmarkWritesAfterLists(b *testing.B) {
	s := open(b)
	from := 0
	write := func(n int) float64 {
		cpu := cpuTime()
		floortest.Drive(b, 64, floortest.InOrder, from, n, func(id string) error { return storeRun(b, s, id) })
		from += n
		return float64(cpuTime() - cpu)
	}
	write(20_000)
	var ratios []float64
	b.ResetTimer()
	for range b.N {
		before := write(2000)
		listAll(b, s, 15_000)
		after := write(2000)
		ratios = append(ratios, after/before)
		listAll(b, s, 1)
	}
	slices.Sort(ratios)
	b.ReportMetric(100*ratios[b.N/2], "%-of-before")
	b.ReportMetric(0, "ns/op") // of all that: says nothing
}

// listAll has each reader list so many runs.
func listAll(b *testing.B, s *sqlite.Store, n int) {
	b.Helper()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			q := state.Query{Limit: 500}
			for seen := 0; seen < n; seen += q.Limit {
				page, err := s.List(b.Context(), q)
				if err != nil {
					b.Error(err)
					return
				}
				q.Cursor = page.Next
			}
		})
	}
	wg.Wait()
}

func measure(b *testing.B, concurrent int, run func(id string) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	floortest.Drive(b, concurrent, floortest.InOrder, 0, b.N, run)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/run")
}

func openStore(b *testing.B) func(id string) error {
	b.Helper()
	s := open(b)
	return func(id string) error { return storeRun(b, s, id) }
}

func open(b *testing.B) *sqlite.Store {
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
	return s
}

var benchPlan = []string{"reserve_stock", "charge_card", "grant_points", "notify", "close"}

func benchRecord(id string, now time.Time) *state.Record {
	rec := &state.Record{
		Key: "tenant-a#create_order#" + id, Operation: "create_order", Version: 1, Plan: benchPlan, Retention: 720 * time.Hour,
		Status: state.StatusInProgress, CurrentStep: benchPlan[0], Steps: make([]state.StepRecord, floortest.Steps),
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
	for i := range floortest.Steps {
		now = time.Now()
		ch := &state.Change{
			Key: rec.Key, IfOwner: rec.Owner, IfRevision: int64(i + 1), IfNoCancel: true, WriteID: rec.WriteID, Owner: rec.Owner, Runs: 1,
			Status: state.StatusInProgress, LeaseUntil: now.Add(30 * time.Second), UpdatedAt: now,
			Steps: []state.StepChange{{Index: i, StepRecord: state.StepRecord{
				Name: benchPlan[i], Status: state.StepDone, Attempts: 1, Output: floortest.Output(id, i), StartedAt: now, EndedAt: now,
			}}},
		}
		if i == floortest.Steps-1 {
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

package floortest

import (
	"encoding/hex"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// IDs names the runs of a benchmark: the same number always gives the same ID.
type IDs func(i int) string

// InOrder are IDs that follow each other, as a counter gives them: whatever is sorted by them has those of the runs at work
// side by side.
func InOrder(i int) string { return "order-" + strconv.Itoa(10_000_000+i) }

// Scattered are random IDs, as UUIDs are.
func Scattered(i int) string {
	var seed [32]byte
	copy(seed[:], strconv.Itoa(i))
	var id [16]byte
	_, _ = rand.NewChaCha8(seed).Read(id[:])
	return hex.EncodeToString(id[:])
}

// Orders are both kinds of IDs. A table that is sorted by key likes the first and not the second.
var Orders = []struct {
	Name string
	IDs  IDs
}{{"in-order", InOrder}, {"scattered", Scattered}}

// Drive makes the runs from..from+n-1, so many at once, and tells how long it took.
func Drive(b *testing.B, concurrent int, ids IDs, from, n int, run func(id string) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range concurrent {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := run(ids(from + i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// Floor opens the hand-written program on a file of its own, and gives its run. Alone it does without group commit.
func Floor(b *testing.B, concurrent int) func(id string) error {
	b.Helper()
	return openFor(b, concurrent).run
}

func openFor(b *testing.B, concurrent int) *floor {
	b.Helper()
	f, err := open(filepath.Join(b.TempDir(), "floor.db"), concurrent > 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.close(); err != nil {
			b.Error(err)
		}
	})
	return f
}

// Ratio has the hand-written program and another one take turns, b.N of them, since a disk that others use too is now fast
// and now slow, and reports the medians of both, and of the other's runs per second as a part of the floor's.
//
// All connections of a process share SQLite's page cache as this driver is built, and two busy files drive out of it what
// the other needs, so it is emptied before each turn.
func Ratio(b *testing.B, concurrent int, ids IDs, run func(id string) error) {
	b.Helper()
	f := openFor(b, concurrent)
	turn := func(i int, run func(id string) error) float64 {
		if err := exec(f.forget); err != nil {
			b.Fatal(err)
		}
		n := 50 * concurrent
		return float64(n) / Drive(b, concurrent, ids, i*n, n, run).Seconds()
	}
	var floors, others, ratios []float64
	b.ResetTimer()
	for i := range b.N {
		hand, other := turn(i, f.run), turn(i, run)
		floors, others, ratios = append(floors, hand), append(others, other), append(ratios, other/hand)
	}
	b.ReportMetric(median(floors), "floor-runs/s")
	b.ReportMetric(median(others), "runs/s")
	b.ReportMetric(100*median(ratios), "%-of-floor")
	b.ReportMetric(0, "ns/op") // of a pair of turns: says nothing
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

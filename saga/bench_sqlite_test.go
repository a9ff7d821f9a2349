package saga_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/floortest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

// BenchmarkSQLiteToFloor has runs on the embedded store and the hand-written program take turns.
func BenchmarkSQLiteToFloor(b *testing.B) {
	for _, ids := range floortest.Orders {
		for _, concurrent := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", ids.Name, concurrent), func(b *testing.B) {
				o := benchOnSQLite(b)
				floortest.Ratio(b, concurrent, ids.IDs, func(id string) error {
					runBench(b.Context(), b, o, id)
					return nil
				})
			})
		}
	}
}

// BenchmarkSQLite measures runs on the embedded store, so many at once.
func BenchmarkSQLite(b *testing.B) {
	for _, concurrent := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("tsuzuki/%d", concurrent), func(b *testing.B) {
			b.ReportAllocs()
			o := benchOnSQLite(b)
			var longest atomic.Int64
			b.ResetTimer()
			floortest.Drive(b, concurrent, floortest.InOrder, 0, b.N, func(id string) error {
				began := time.Now()
				runBench(b.Context(), b, o, id)
				for took := int64(time.Since(began)); ; {
					if was := longest.Load(); took <= was || longest.CompareAndSwap(was, took) {
						return nil
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			b.ReportMetric(float64(longest.Load())/1e6, "max-ms")
		})
	}
}

func benchOnSQLite(b *testing.B) *saga.Orchestrator[benchInput, benchOutput] {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return benchOrchestrator(b, s)
}

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
				s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				o := benchOrchestrator(b, s)
				floortest.Ratio(b, concurrent, ids.IDs, func(id string) error {
					_, err := o.Run(b.Context(), saga.Key{Tenant: "tenant-a", ID: id}, benchInput{Order: id, Amount: 4200})
					return err
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
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			o := benchOrchestrator(b, s)
			var longest atomic.Int64
			b.ResetTimer()
			concurrently(b, concurrent, func(i int) {
				began := time.Now()
				runBench(b.Context(), b, o, benchID(i))
				for took := int64(time.Since(began)); ; {
					if was := longest.Load(); took <= was || longest.CompareAndSwap(was, took) {
						break
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			b.ReportMetric(float64(longest.Load())/1e6, "max-ms")
		})
	}
}

package saga_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

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

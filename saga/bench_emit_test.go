package saga_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/floortest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// emitLast emits one small message in the last of the benchmark's five steps.
func emitLast(i int, r *steps.Run[benchInput]) {
	if i == 4 {
		r.Emit(outbox.Message{Topic: "order-created", Key: r.Input.Order, Type: "order.created", Body: benchStep(r.Input.Order, i)})
	}
}

// BenchmarkEmit measures what emitting one small message adds to a run of five steps on SQLite. Runs with and without one
// alternate, each kind on a file of its own, so that whatever else the machine does meets both alike. The ratio of the
// medians is reported, and that of the sums, in which a few stalls of the disk weigh as much as all the rest. Nothing is
// sent: a relay's work is measured by BenchmarkDrain in outbox.
func BenchmarkEmit(b *testing.B) {
	open := func(emit func(int, *steps.Run[benchInput])) *saga.Orchestrator[benchInput, benchOutput] {
		s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "runs.db"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		o, err := saga.New(benchDefinition(emit), s)
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	kinds := [2]*saga.Orchestrator[benchInput, benchOutput]{open(nil), open(emitLast)}
	var took [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		for turn := range kinds {
			kind := (i + turn) % 2 // each goes first as often as the other
			began := time.Now()
			runBench(b.Context(), b, kinds[kind], floortest.InOrder(i))
			took[kind] = append(took[kind], time.Since(began))
		}
	}
	var median, sum [2]float64
	for kind := range took {
		slices.Sort(took[kind])
		median[kind] = float64(took[kind][len(took[kind])/2])
		for _, d := range took[kind] {
			sum[kind] += float64(d)
		}
	}
	b.ReportMetric(median[0]/1e3, "without-µs")
	b.ReportMetric(median[1]/1e3, "with-µs")
	b.ReportMetric(median[1]/median[0], "ratio")
	b.ReportMetric(sum[1]/sum[0], "ratio-of-sums")
	b.ReportMetric(0, "ns/op")
}

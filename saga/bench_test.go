package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The workload of all benchmarks here: five steps, each with a result of about 60 bytes of JSON.

type benchInput struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

type benchOutput struct {
	Order  string `json:"order"`
	Step   int    `json:"step"`
	Amount int64  `json:"amount"`
	State  string `json:"state"`
}

func benchStep(order string, i int) benchOutput {
	return benchOutput{Order: order, Step: i, Amount: int64(1000 + 7*i), State: "ok"}
}

func benchDefinition(emit func(i int, r *steps.Run[benchInput])) *saga.Definition[benchInput, benchOutput] {
	var declared []steps.Declared[benchInput]
	var last *steps.Step[benchInput, benchOutput]
	for i := range 5 {
		last = steps.New("step_"+strconv.Itoa(i), func(_ context.Context, r *steps.Run[benchInput]) (benchOutput, error) {
			if emit != nil {
				emit(i, r)
			}
			return benchStep(r.Input.Order, i), nil
		})
		declared = append(declared, last)
	}
	return saga.Define("bench", func(_ context.Context, r *steps.Run[benchInput]) (benchOutput, error) { return last.Output(r), nil }, declared...)
}

func benchOrchestrator(b *testing.B, store state.Store, opts ...saga.Option) *saga.Orchestrator[benchInput, benchOutput] {
	b.Helper()
	o, err := saga.New(benchDefinition(nil), store, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return o
}

func runBench(ctx context.Context, b *testing.B, o *saga.Orchestrator[benchInput, benchOutput], id string) {
	b.Helper()
	out, err := o.Run(ctx, saga.Key{Tenant: "tenant-a", ID: id}, benchInput{Order: id, Amount: 4200})
	if err != nil || out.Step != 4 {
		b.Errorf("run %s: %v, %v", id, out, err)
	}
}

// handWritten is the least that a program does that keeps a record in memory: per run an insert, and per step a result
// that is encoded, stored as a copy, and decoded again.
type handWritten struct {
	mu   sync.Mutex
	runs map[string]*handRecord
}

type handRecord struct {
	input []byte
	steps [][]byte
	done  bool
}

func (h *handWritten) run(id string) (out benchOutput, err error) {
	in, err := json.Marshal(benchInput{Order: id, Amount: 4200})
	if err != nil {
		return out, err
	}
	h.mu.Lock()
	h.runs[id] = &handRecord{input: bytes.Clone(in)}
	h.mu.Unlock()
	for i := range 5 {
		raw, err := json.Marshal(benchStep(id, i))
		if err != nil {
			return out, err
		}
		h.mu.Lock()
		r := h.runs[id]
		r.steps = append(r.steps, bytes.Clone(raw))
		r.done = i == 4
		h.mu.Unlock()
		if err := json.Unmarshal(raw, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// BenchmarkMemory compares a run on the store in memory with the same five encode-store-decode rounds written by hand.
func BenchmarkMemory(b *testing.B) {
	// A new store now and then, so that it is runs that are measured, and not the collector's way through old ones.
	const fresh = 1000
	b.Run("by-hand", func(b *testing.B) {
		b.ReportAllocs()
		var h *handWritten
		for i := 0; b.Loop(); i++ {
			if i%fresh == 0 {
				h = &handWritten{runs: map[string]*handRecord{}}
			}
			if _, err := h.run("order-" + strconv.Itoa(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tsuzuki", func(b *testing.B) {
		b.ReportAllocs()
		var o *saga.Orchestrator[benchInput, benchOutput]
		for i := 0; b.Loop(); i++ {
			if i%fresh == 0 {
				o = benchOrchestrator(b, memory.New())
			}
			runBench(b.Context(), b, o, "order-"+strconv.Itoa(i))
		}
	})
	b.Run("tsuzuki-replay", func(b *testing.B) {
		b.ReportAllocs()
		o := benchOrchestrator(b, memory.New())
		for b.Loop() {
			runBench(b.Context(), b, o, "order-1")
		}
	})
}

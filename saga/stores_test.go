package saga_test

import (
	"context"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// storeKind is one kind of store in the table. open makes one test's store, on the given clock, and returns a function
// that opens it (again): every call gives a handle on the same records, as a process of its own would have. What was
// opened is closed when the test ends. It skips the test when the store can't be had here, and fails it in CI.
type storeKind struct {
	name string
	open func(t *testing.T, clk saga.Clock) (open func() state.Store)

	// place makes a store for several processes, and elsewhere opens it in another one; nil: it can't be shared.
	place     func(t *testing.T) (place string)
	elsewhere func(ctx context.Context, place string) (s state.Store, closed func() error, err error)
}

// storeKinds are the stores that behaviour is tested on; the other files of this name add theirs.
var storeKinds = []storeKind{{name: "memory", open: openMemory}}

// eachStore runs f on every store there is, in parallel subtests, on the machine's clock. open opens the subtest's own
// store; opened again, as another process would, it is the same records.
func eachStore(t *testing.T, f func(t *testing.T, open func() state.Store)) {
	t.Helper()
	onEach(t, storeKinds, func(t *testing.T, kind storeKind) { f(t, kind.open(t, saga.SystemClock())) })
}

// eachStoreAt is eachStore on a fake clock of the subtest's own. Sleeps of the library move the clock on; nothing else
// does but the test.
func eachStoreAt(t *testing.T, f func(t *testing.T, clk *clock.Fake, open func() state.Store)) {
	t.Helper()
	onEach(t, storeKinds, func(t *testing.T, kind storeKind) {
		clk := new(clock.Fake)
		clk.AutoAdvance()
		f(t, clk, kind.open(t, clk))
	})
}

func onEach(t *testing.T, kinds []storeKind, f func(t *testing.T, kind storeKind)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

func openMemory(_ *testing.T, clk saga.Clock) func() state.Store {
	s := memory.New(memory.WithClock(clk))
	return func() state.Store { return s }
}

package statetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultVariable names the fault in the child processes of TestFaultsAreFound.
const faultVariable = "TSUZUKI_STATETEST_FAULT"

// TestFaultyStore is the child's side of TestFaultsAreFound; by itself it tests the correct store.
func TestFaultyStore(t *testing.T) {
	open := func() state.Store { return memory.New() }
	if name := os.Getenv(faultVariable); name != "" {
		open = faults[name].open
		statetest.SetPatience(2 * time.Second)
		require.NotNil(t, open, "no such fault: %s", name)
	}
	statetest.Run(t, func(*testing.T) state.Store { return open() })
}

// TestFaultsAreFound runs the suite on stores that are wrong in one way each, in processes of their own, since a suite
// that has failed can't be taken back.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := strings.ReplaceAll(fault.part, " ", "_")
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFaultyStore$/^store$/^"+part+"$", "-test.timeout", "60s")
			child.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := child.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the suite did not see the fault in part %q:\n%s", fault.part, out)
			require.Contains(t, string(out), "--- FAIL: TestFaultyStore/store/"+part, "it failed otherwise")
			require.NotContains(t, string(out), "panic:", "it must fail in order")
		})
	}
}

// counting counts the calls of a store.
type counting struct {
	state.Store
	calls *atomic.Int64
}

func (c counting) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	c.calls.Add(1)
	return c.Store.Create(ctx, rec)
}

func (c counting) Commit(ctx context.Context, ch *state.Change) error {
	c.calls.Add(1)
	return c.Store.Commit(ctx, ch)
}

func (c counting) Get(ctx context.Context, key string) (*state.Record, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key)
}

func (c counting) List(ctx context.Context, q state.Query) (state.Page, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, q)
}

func (c counting) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	c.calls.Add(1)
	return c.Store.Claim(ctx, limit, lease)
}

// TestTheSuiteIsAffordable: it is run against servers too. It also runs here as a store that can do less.
func TestTheSuiteIsAffordable(t *testing.T) {
	var calls, opened atomic.Int64
	statetest.Run(t, func(*testing.T) state.Store {
		opened.Add(1)
		return lesser{counting{memory.New(memory.WithMaxRecord(2 << 20)), &calls}}
	})
	t.Logf("%d stores, %d calls", opened.Load(), calls.Load())
	assert.Less(t, calls.Load(), int64(6000))
	assert.Less(t, opened.Load(), int64(40))
}

// lesser can't list ended runs and has a limit on values.
type lesser struct{ counting }

const lesserValue = 400 << 10

func (l lesser) Capabilities() state.Capabilities {
	c := l.counting.Capabilities()
	c.ListEnded, c.MaxValue = false, lesserValue
	return c
}

func (l lesser) List(ctx context.Context, q state.Query) (state.Page, error) {
	for _, s := range q.Statuses {
		if s.Ended() {
			return state.Page{}, state.ErrUnsupported
		}
	}
	page, err := l.counting.List(ctx, q)
	var open []*state.Record
	for _, rec := range page.Records {
		if !rec.Status.Ended() {
			open = append(open, rec)
		}
	}
	page.Records = open
	return page, err
}

func (l lesser) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	if len(rec.Input) > lesserValue {
		return nil, state.ErrTooLarge
	}
	return l.counting.Create(ctx, rec)
}

func (l lesser) Commit(ctx context.Context, ch *state.Change) error {
	sizes := []int{len(ch.Response)}
	for _, s := range ch.Steps {
		sizes = append(sizes, len(s.Output))
	}
	for _, m := range ch.Messages {
		sizes = append(sizes, len(m.Bytes()))
	}
	for _, n := range sizes {
		if n > lesserValue {
			return state.ErrTooLarge
		}
	}
	return l.counting.Commit(ctx, ch)
}

// TestReopen: the records that are checked again come from the store that reopen returns.
func TestReopen(t *testing.T) {
	var reopened atomic.Int64
	statetest.Run(t, func(*testing.T) state.Store { return durable{memory.New()} },
		statetest.Sequences(2), statetest.Seed(7),
		statetest.Reopen(func(_ *testing.T, s state.Store) state.Store { reopened.Add(1); return s }))
	assert.EqualValues(t, 2, reopened.Load())
}

type durable struct{ state.Store }

func (d durable) Capabilities() state.Capabilities {
	c := d.Store.Capabilities()
	c.Durable = true
	return c
}

package sagatest

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

const onlyFlag = "sagatest.only"

var only = flag.String(onlyFlag, "", "of sagatest.Crash: play this one run alone, as a failure names it")

// CrashReport says what [Crash] has done.
type CrashReport struct {
	// Runs is how often the saga was run, those without a fault included.
	Runs int
	// Boundaries is how many points there were at which something could happen.
	Boundaries int
	// Faults is how often each fault has struck.
	Faults map[string]int
	// Left is how many faults [OneIn] has left out.
	Left int
	// NeverReached are the functions of the definition that no run has called, such as "undo ship" or "probe charge".
	NeverReached []string
}

// Struck is how many runs met a fault.
func (r CrashReport) Struck() (n int) {
	for _, k := range r.Faults {
		n += k
	}
	return n
}

// CrashOption is an option of [Crash]. Only this package makes them.
type CrashOption interface{ applyCrash(*crashConfig) error }

type crashOption func(*crashConfig) error

func (o crashOption) applyCrash(c *crashConfig) error { return o(c) }

type crashConfig struct {
	store   func(saga.Clock) state.Store
	options []saga.Option
	oneIn   int
}

// OneIn lets only one in n faults strike, always the same ones: for a store that takes its time. The report says how many
// were left out, and the functions that only those would have reached are reported as never reached.
func OneIn(n int) CrashOption {
	return crashOption(func(c *crashConfig) error {
		if n < 1 {
			return fmt.Errorf("OneIn(%d): at least 1", n)
		}
		c.oneIn = n
		return nil
	})
}

// OnStore lets the lab work on this store in place of one in memory. open is called once, with the clock that the store
// is to use; the lab deletes the run's record after every run, and nothing else.
func OnStore(open func(clk saga.Clock) state.Store) CrashOption {
	return crashOption(func(c *crashConfig) error {
		if open == nil {
			return errors.New("OnStore(nil)")
		}
		c.store = open
		return nil
	})
}

// WithOptions gives the orchestrators options of their own, such as saga.WithErrors. The clock is the lab's.
func WithOptions(opts ...saga.Option) CrashOption {
	return crashOption(func(c *crashConfig) error {
		c.options = append(c.options, opts...)
		return nil
	})
}

// Crash proves that a saga survives. It runs it once without a fault to learn every boundary: before and after each
// function of a step, each call of the [Recorder], each write to the store, each undo and each message. Then it runs it
// once for each boundary and each fault that can strike there: the process dies (and a cancel arrives meanwhile), the
// answer is lost, the participant or the store fails or goes away, a cancel arrives, the lease lapses and another process
// takes over while the first goes on. A saga that completes is also sent back, by a cancel and by a reversal, and the way
// back meets the same. After each fault the run is taken up by new processes until it rests, and then:
//
//   - the result equals that of the run without the fault (a cancel may end it as FAILED);
//   - no function was started after its step was recorded as DONE, and the record kept all its rules;
//   - all calls under one key were the same call;
//   - when it failed, every done or unknown step was undone, and nothing else;
//   - a message arrives if and only if its step is recorded.
//
// newSaga makes the definition for one process: it is called for every process that there is, and whatever it keeps
// outside of the Recorder dies with the process or, worse, does not. The participants' answers must depend on the calls
// alone. No time passes: the clock is the lab's. Each run takes a fraction of a millisecond in memory.
//
// A failure names the boundary and the fault, and the line that repeats it. The report also says what was never reached.
func Crash[In, Out any](t testing.TB, newSaga func(*Recorder) *saga.Definition[In, Out], key saga.Key, in In, opts ...CrashOption) CrashReport {
	t.Helper()
	l := &lab{
		t: t, world: new(clock.Fake), lease: saga.DefaultLease, only: *only,
		notes: newNotes(), calls: map[string]bool{}, said: map[string]int{}, report: CrashReport{Faults: map[string]int{}},
	}
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.applyCrash(&l.cfg); err != nil {
			t.Fatalf("sagatest: Crash: %v", err)
		}
	}
	if newSaga == nil {
		t.Fatalf("sagatest: Crash: the constructor is nil")
	}
	first := newSaga(new(Recorder))
	if first == nil {
		t.Fatalf("sagatest: Crash: the constructor returned nil")
	}
	l.def = first.Snapshot()
	named := key
	named.Operation = l.def.Name
	var err error
	if l.runKey, err = named.Encode(); err != nil {
		t.Fatalf("sagatest: Crash: %v", err)
	}
	l.world.Set(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if l.cfg.store == nil {
		l.store = memory.New(memory.WithClock(l.world))
	} else if l.store = l.cfg.store(l.world); l.store == nil {
		t.Fatalf("sagatest: Crash: OnStore gave no store")
	}
	l.open = func(rec *Recorder, store state.Store, opts []saga.Option) (runner, error) {
		o, err := saga.New(newSaga(rec), store, opts...)
		return typed[In, Out]{o, key, in}, err
	}
	if _, err := l.open(new(Recorder), l.store, nil); err != nil {
		t.Fatalf("sagatest: Crash: %v", err)
	}
	l.run()
	return l.report
}

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const (
	crashed   = 3 // exit code of a child that ended itself
	processes = 4
	callers   = 64
	herdKeys  = 6
	// shortLease is long enough for a loaded machine, since nothing but a death should let one lapse.
	shortLease = time.Second
)

func init() {
	children["five"] = childFive
	children["herd"] = childHerd
}

// onLedger is the chain of five on a ledger file. after runs between the effect and the record.
func (s *site) onLedger(after func(step string)) *saga.Definition[order, []string] {
	c := chain{p: new(participant)}
	c.declare = func(i int, step *steps.Step[order, voucher]) {
		*step = *steps.New(step.Name(), func(_ context.Context, r *orderRun) (voucher, error) {
			got, err := s.ledger.do(r.Step(), r.IdempotencyKey())
			after(r.Step())
			return got, err
		}).Retry(once)
	}
	return c.of(five)
}

// childFive runs the key, and ends itself after the effect of the step that it is told, or waits there to be ended.
func childFive() int {
	return inChild(func(ctx context.Context, s *site, store state.Store) (any, error) {
		told := os.Getenv(extraVariable)
		hangAt, hangs := strings.CutPrefix(told, "!")
		o, err := saga.New(s.onLedger(func(step string) {
			switch {
			case hangs && step == hangAt:
				fmt.Println("hanging")
				select {}
			case step == told:
				os.Exit(crashed)
			}
		}), store, saga.WithLease(shortLease))
		if err != nil {
			return nil, err
		}
		return o.Run(ctx, theKey, theOrder, saga.Wait(time.Minute))
	})
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

// Five steps, and a process of its own for each that ends itself after the effect and before the record.
func TestProcessesThatEndThemselvesBetweenEffectAndRecord(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		var want []string
		for k, call := range calledKeys(theKey) {
			cmd, _ := s.process(t.Context(), "five", fmt.Sprintf("s%d", k+1))
			require.Equal(t, crashed, exitCode(t, cmd.Run()))
			want = append(want, call, call)
			require.Equal(t, want[:len(want)-1], s.ledger.lines())
			if k == 0 { // in another process, too, the run is someone else's until the lease has lapsed
				o := newSaga(t, s.onLedger(func(string) {}), s.open(t), saga.WithLease(shortLease))
				_, err := o.Run(t.Context(), theKey, theOrder)
				require.Positive(t, sagaError(t, err, saga.ErrInProgress).RetryAfter)
			}
		}
		cmd, stdout := s.process(t.Context(), "five", "")
		require.NoError(t, cmd.Run())
		require.Equal(t, fivePlain, childSaid[[]string](t, stdout))
		require.Equal(t, want, s.ledger.lines())

		cmd, stdout = s.process(t.Context(), "five", "")
		require.NoError(t, cmd.Run(), "a replay in yet another process")
		require.Equal(t, fivePlain, childSaid[[]string](t, stdout))
		require.Equal(t, want, s.ledger.lines())
	})
}

// The same with processes that are killed, and get no chance to say anything.
func TestAProcessThatIsKilledBetweenEffectAndRecord(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		cmd, stdout := s.process(t.Context(), "five", "!s3")
		cmd.Stdout = nil
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		said := make([]byte, 7)
		_, err = pipe.Read(said)
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.Empty(t, stdout.String())

		cmd, stdout = s.process(t.Context(), "five", "")
		require.NoError(t, cmd.Run())
		require.Equal(t, fivePlain, childSaid[[]string](t, stdout))
		require.Equal(t, again(calledKeys(theKey), 3), s.ledger.lines())
	})
}

// outcomes counts what the callers of one key got.
type outcomes struct{ First, Replayed, InProgress int }

func (o *outcomes) add(p outcomes) {
	o.First, o.Replayed, o.InProgress = o.First+p.First, o.Replayed+p.Replayed, o.InProgress+p.InProgress
}

// herd calls one key n times at once. Whatever a caller may not get is an error.
func herd(ctx context.Context, n int, key saga.Key, pick func(i int) *saga.Orchestrator[order, []string]) (sum outcomes, err error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		start = make(chan struct{})
	)
	for i := range n {
		wg.Go(func() {
			<-start
			var info saga.RunInfo
			got, e := pick(i).Run(ctx, key, theOrder, saga.Report(&info))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(e, saga.ErrInProgress):
				sum.InProgress++
			case e != nil:
				err = errors.Join(err, e)
			case len(got) != five:
				err = errors.Join(err, fmt.Errorf("the result is %v", got))
			case info.Replayed:
				sum.Replayed++
			default:
				sum.First++
			}
		})
	}
	close(start)
	wg.Wait()
	return sum, err
}

// childHerd is a part of the callers, who start at the time that it is told.
func childHerd() int {
	return inChild(func(ctx context.Context, s *site, store state.Store) (any, error) {
		o, err := saga.New(s.onLedger(func(string) {}), store)
		if err != nil {
			return nil, err
		}
		ms, err := strconv.ParseInt(os.Getenv(extraVariable), 10, 64)
		if err != nil {
			return nil, err
		}
		<-time.After(time.Until(time.UnixMilli(ms)))
		var out [herdKeys]outcomes
		for i := range out {
			out[i], err = herd(ctx, callers/processes, herdKey(i), func(int) *saga.Orchestrator[order, []string] { return o })
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

func herdKey(i int) saga.Key { return saga.Key{ID: fmt.Sprint("herd-", i)} }

// 64 callers in 4 processes run one key at once, and then the next: each step's function runs once, one caller gets the
// result, and the others ErrInProgress or the stored one.
func TestFourProcessesRunOneKeyAtOnce(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		store := s.open(t) // the file is made before the race for its runs
		begin := time.Now().Add(500 * time.Millisecond).UnixMilli()
		var sum [herdKeys]outcomes
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range processes {
			cmd, stdout := s.process(t.Context(), "herd", strconv.FormatInt(begin, 10))
			require.NoError(t, cmd.Start())
			wg.Go(func() {
				if err := cmd.Wait(); err != nil {
					t.Errorf("a process: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for i, o := range childSaid[[herdKeys]outcomes](t, stdout) {
					sum[i].add(o)
				}
			})
		}
		wg.Wait()
		require.False(t, t.Failed())
		var want []string
		for i, o := range sum {
			require.Equal(t, 1, o.First, "key %d: %+v", i, o)
			require.Equal(t, callers, o.First+o.Replayed+o.InProgress)
			want = append(want, calledKeys(herdKey(i))...)
			key := herdKey(i)
			rec := recordOf(t, store, key, "chain")
			require.Equal(t, state.StatusCompleted, rec.Status)
			require.Equal(t, 1, rec.Runs)
		}
		require.ElementsMatch(t, want, s.ledger.lines())
	})
}

// The same in one process, with a handle on the store for every other caller.
func TestSixtyFourGoroutinesRunOneKeyAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() state.Store) {
		p := new(participant)
		d := chain{p: p}.of(five)
		two := [...]*saga.Orchestrator[order, []string]{newSaga(t, d, open()), newSaga(t, d, open())}
		var want []string
		for i := range herdKeys {
			got, err := herd(t.Context(), callers, herdKey(i), func(i int) *saga.Orchestrator[order, []string] { return two[i%2] })
			require.NoError(t, err)
			require.Equal(t, 1, got.First)
			require.Equal(t, callers, got.First+got.Replayed+got.InProgress)
			want = append(want, calledKeys(herdKey(i))...)
		}
		require.Equal(t, want, p.all())
		got, err := herd(t.Context(), callers, herdKey(0), func(i int) *saga.Orchestrator[order, []string] { return two[i%2] })
		require.NoError(t, err)
		require.Equal(t, outcomes{Replayed: callers}, got)
		require.Equal(t, want, p.all())
	})
}

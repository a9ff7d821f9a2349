package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// childEnv names what this test binary does when a test starts it as another process; its arguments follow in childArgs.
const (
	childEnv  = "TSUZUKI_SQLITE_CHILD"
	childPath = "TSUZUKI_SQLITE_PATH"
	childName = "TSUZUKI_SQLITE_NAME"
	childRuns = "TSUZUKI_SQLITE_RUNS"
)

var children = map[string]func() int{"writer": writerChild, "runs": runsChild}

// child starts another process on the file.
func child(t *testing.T, what, path, name string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self) //nolint:noctx // it is killed, or ends by itself
	cmd.Env = append(append(os.Environ(), childEnv+"="+what, childPath+"="+path, childName+"="+name), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("process %s: %s", name, stderr.String())
		}
	})
	return cmd, bufio.NewScanner(out)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// writerChild makes runs and steps, several at once, and says which write was answered, until it is killed.
func writerChild() int {
	s, err := Open(context.Background(), os.Getenv(childPath))
	if err != nil {
		return fail(err)
	}
	var mu sync.Mutex
	acknowledge := func(id string, revision int64) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%s %d\n", id, revision)
	}
	errs := make(chan error)
	for w := range 4 {
		go func() { errs <- writeForEver(s, fmt.Sprintf("%s-%d", os.Getenv(childName), w), acknowledge) }()
	}
	return fail(<-errs)
}

func writeForEver(s *Store, name string, acknowledge func(id string, revision int64)) error {
	for i := 0; ; i++ {
		rec := sample(name + "-" + strconv.Itoa(i))
		if _, err := s.Create(context.Background(), rec); err != nil {
			return err
		}
		acknowledge(rec.Key, rec.Revision)
		for step := range rec.Steps {
			ch := stepDone(rec, step, `{"step":`+strconv.Itoa(step)+`}`)
			if err := s.Commit(context.Background(), ch); err != nil {
				return err
			}
			if err := ch.Apply(rec); err != nil {
				return err
			}
			acknowledge(rec.Key, rec.Revision)
		}
	}
}

// TestKilled: of a process that is killed in the middle of its work, every write that was answered is there, whole, and
// the file is sound.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/runs.db"
	latest := map[string]int64{}
	for life := range 3 {
		cmd, out := child(t, "writer", path, fmt.Sprint("life", life))
		for n := 0; n < 200 && out.Scan(); n++ {
			note(t, latest, out.Text())
		}
		require.NoError(t, cmd.Process.Kill())
		for out.Scan() { // what it said before it died
			note(t, latest, out.Text())
		}
		require.Error(t, cmd.Wait())

		s, err := Open(t.Context(), path)
		require.NoError(t, err)
		for key, revision := range latest {
			rec := get(t, s, key)
			require.GreaterOrEqual(t, rec.Revision, revision, "%s: a write that was answered", key)
			for i := range rec.Steps {
				require.Equal(t, int64(i) < rec.Revision-1, rec.Done(rec.Steps[i].Name), "%s: step %d at revision %d", key, i, rec.Revision)
			}
		}
		require.Equal(t, [][]string{{"ok"}}, query(t, tool(t, path), `PRAGMA integrity_check`))
		for _, table := range []string{"run_about", "run_outbox", "run_payload"} {
			require.Equal(t, [][]string{{"0"}}, query(t, tool(t, path), `SELECT count(*) FROM `+table+` WHERE id NOT IN (SELECT id FROM run_record)`), table)
		}
		require.NoError(t, s.Close())
	}
	require.NotEmpty(t, latest)
}

func note(t *testing.T, latest map[string]int64, line string) {
	t.Helper()
	var key string
	var revision int64
	if _, err := fmt.Sscan(line, &key, &revision); err == nil { // a last line may be cut
		latest[key] = max(latest[key], revision)
	}
}

// runsChild makes runs of five writes each, 32 at once, and reports how many, and the longest that one write and one run took.
// It begins when it is told to, and ends when its standard input does.
func runsChild() int {
	path, name := os.Getenv(childPath), os.Getenv(childName)
	s, err := Open(context.Background(), path)
	if err != nil {
		return fail(err)
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return fail(err)
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop.Store(true)
	}()
	var runs, longestWrite, longestRun atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 32)
	for w := range 32 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				began := time.Now()
				if err := oneRun(s, fmt.Sprintf("%s-%d-%d", name, w, i), &longestWrite); err != nil {
					errs <- err
					return
				}
				raise(&longestRun, time.Since(began))
				runs.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return fail(err)
	default:
	}
	if err := s.Close(); err != nil {
		return fail(err)
	}
	fmt.Println(runs.Load(), time.Duration(longestWrite.Load()), time.Duration(longestRun.Load()))
	return 0
}

func raise(to *atomic.Int64, d time.Duration) {
	for {
		old := to.Load()
		if int64(d) <= old || to.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func oneRun(s *Store, id string, longest *atomic.Int64) error {
	rec := sample(id)
	began := time.Now()
	if _, err := s.Create(context.Background(), rec); err != nil {
		return err
	}
	raise(longest, time.Since(began))
	for i := range rec.Steps {
		ch := stepDone(rec, i, `{"ok":true}`)
		if i == len(rec.Steps)-1 {
			ch.Status, ch.Owner, ch.LeaseUntil, ch.ExpiresAt = state.StatusCompleted, "", time.Time{}, time.Now().Add(time.Hour)
		}
		began = time.Now()
		if err := s.Commit(context.Background(), ch); err != nil {
			return err
		}
		raise(longest, time.Since(began))
		if err := ch.Apply(rec); err != nil {
			return err
		}
	}
	return nil
}

// TestTwoProcesses that are both busy on one file share it: each gets on, and neither waits for long. How long is reported,
// since a machine that is busy with something else may stop any process for any time.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/runs.db"
	var outs []*bufio.Scanner
	var stops []io.Closer
	for i := range 2 {
		cmd, out, in := busyChild(t, path, fmt.Sprint("process", i))
		require.True(t, out.Scan())
		require.Equal(t, "ready", out.Text())
		outs, stops = append(outs, out), append(stops, in)
		t.Cleanup(func() { _ = cmd.Process.Kill() })
	}
	for _, in := range stops {
		_, err := io.WriteString(in.(io.Writer), "go\n")
		require.NoError(t, err)
	}
	<-time.After(busyFor(t))
	for _, in := range stops {
		require.NoError(t, in.Close())
	}
	total := 0
	for i, out := range outs {
		require.True(t, out.Scan(), "process %d failed", i)
		var runs int
		var write, run string
		_, err := fmt.Sscan(out.Text(), &runs, &write, &run)
		require.NoError(t, err, out.Text())
		require.Positive(t, runs, "process %d starved", i)
		t.Logf("process %d: %d runs, the longest write took %s, the longest run %s", i, runs, write, run)
		total += runs
	}
	c := tool(t, path)
	require.Equal(t, [][]string{{strconv.Itoa(total)}}, query(t, c, `SELECT count(*) FROM runs WHERE status = 'COMPLETED'`))
	require.Equal(t, [][]string{{"ok"}}, query(t, c, `PRAGMA integrity_check`))
}

// busyFor is how long the processes are busy: a moment, or as long as the environment says when something is measured.
func busyFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(childRuns)
	if text == "" {
		return 300 * time.Millisecond
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func busyChild(t *testing.T, path, name string) (*exec.Cmd, *bufio.Scanner, io.WriteCloser) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self) //nolint:noctx // it ends with its standard input
	cmd.Env = append(os.Environ(), childEnv+"=runs", childPath+"="+path, childName+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out), in
}

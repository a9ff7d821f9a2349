//go:build linux

package sagalambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// These tests run a function in the Lambda runtime interface emulator, which kills it at its timeout. The function is this
// test binary; its store is a SQLite file that all environments share.

const (
	emulatorModule  = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"
	emulatorVersion = "v0.0.0-20261030222936-bef5c4ba774d"
	// functionTimeout is in whole seconds. The lease is half a second longer, since it is shorter than the default.
	functionTimeout = 3 * time.Second
)

func init() { function = beFunction }

// task is what the function is sent.
type task struct {
	ID string `json:"id"`
	// Dies is how the first attempt at the second step ends: "stop" is a process that does nothing any more until it is
	// killed, "exit" one that ends when the effect has happened.
	Dies string `json:"dies"`
}

// beFunction is the function's main.
func beFunction() int {
	dir := os.Getenv(childVariable)
	store, err := sqlite.Open(context.Background(), filepath.Join(dir, "runs.db"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	effect := func(r *steps.Run[task]) error {
		f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, r.IdempotencyKey())
		return errors.Join(err, f.Close())
	}
	one := steps.Do("one", func(_ context.Context, r *steps.Run[task]) error { return effect(r) })
	two := steps.Do("two", func(_ context.Context, r *steps.Run[task]) error {
		if r.Input.Dies == "stop" && !r.Resumed() {
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		if err := effect(r); err != nil {
			return err
		}
		if r.Input.Dies == "exit" && !r.Resumed() {
			os.Exit(1)
		}
		return nil
	})
	o, err := saga.New(saga.Define("task", saga.NoResult[task], one, two), store)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	key, err := sagalambda.KeyAt("id")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lambda.Start(sagalambda.SQS(o, sagalambda.Body[task](key)))
	return 0
}

// emulatorPath builds the emulator once, into the user's cache. Where that can't be done the test is skipped, and fails
// under CI=true.
func emulatorPath(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	bin := filepath.Join(cache, "tsuzuki-ci", "tools", "aws-lambda-rie-"+emulatorVersion)
	path := filepath.Join(bin, "aws-lambda-rie")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.CommandContext(t.Context(), "go", "install", emulatorModule+"@"+emulatorVersion)
	build.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "GOOS=", "GOARCH=")
	if out, err := build.CombinedOutput(); err != nil {
		missing := fmt.Sprintf("the Lambda runtime interface emulator can't be built, so this was not tested: %v\n%s", err, out)
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return path
}

// environment is one execution environment: it takes one invocation at a time.
type environment struct {
	url    string
	client *http.Client
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// startEnvironment starts an emulator of its own around this binary.
func startEnvironment(t *testing.T, dir string) *environment {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	at, log := freeAddress(t), &logged{}
	cmd := exec.Command(emulatorPath(t), "--runtime-interface-emulator-address", at, "--runtime-api-address", freeAddress(t), self) //nolint:noctx // it is ended by signals, gently first
	cmd.Env = append(os.Environ(), childVariable+"="+dir, fmt.Sprintf("AWS_LAMBDA_FUNCTION_TIMEOUT=%d", int(functionTimeout/time.Second)))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	require.NoError(t, cmd.Start())
	e := &environment{"http://" + at + "/2015-03-31/functions/function/invocations", &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		e.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer ended.Stop()
		_ = cmd.Wait() // it was ended by a signal
		if t.Failed() {
			t.Logf("the emulator has said:\n%s", log.text())
		}
	})
	require.Eventually(t, func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, 20*time.Second, 20*time.Millisecond, "the emulator doesn't listen")
	return e
}

// deliver invokes the function with a batch, as the event source mapping does, and returns what is to be delivered again.
func (e *environment) deliver(ctx context.Context, batch []events.SQSMessage) (again []events.SQSMessage, err error) {
	body, err := json.Marshal(queue(batch...))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Failures *[]events.SQSBatchItemFailure `json:"batchItemFailures"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.Failures == nil {
		return batch, nil // the function has failed as a whole
	}
	failed := map[string]bool{}
	for _, f := range *answer.Failures {
		failed[f.ItemIdentifier] = true
	}
	for _, m := range batch {
		if failed[m.MessageId] {
			again = append(again, m)
		}
	}
	return again, nil
}

func taskMessage(t *testing.T, id string, in task) events.SQSMessage {
	t.Helper()
	raw, err := json.Marshal(in)
	require.NoError(t, err)
	return events.SQSMessage{MessageId: id, Body: string(raw), EventSourceARN: standardQueue}
}

// effects are how often each call with a key reached the outside.
func effects(t *testing.T, dir string) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "effects"))
	require.NoError(t, err)
	n := map[string]int{}
	for _, key := range strings.Fields(string(raw)) {
		n[key]++
	}
	return n
}

func statusIn(t *testing.T, dir, id string) state.Status {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "runs.db"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.Close()) }()
	rec, err := store.Get(t.Context(), saga.Key{Operation: "task", ID: id}.String())
	require.NoError(t, err)
	return rec.Status
}

func TestAFunctionThatDiesInTheSecondStepGoesOnWithTheNextDelivery(t *testing.T) {
	for dies, twice := range map[string]int{"stop": 1, "exit": 2} {
		t.Run(dies, func(t *testing.T) {
			dir := t.TempDir()
			e := startEnvironment(t, dir)
			message := []events.SQSMessage{taskMessage(t, "m1", task{ID: "t-1", Dies: dies})}
			again, err := e.deliver(t.Context(), message)
			require.NoError(t, err)
			require.Equal(t, message, again, "the first delivery dies")
			died := time.Now()
			assert.Equal(t, state.StatusInProgress, statusIn(t, dir, "t-1"))
			require.Eventually(t, func() bool {
				again, err = e.deliver(t.Context(), again)
				return assert.NoError(t, err) && len(again) == 0
			}, time.Minute, 200*time.Millisecond)
			assert.Less(t, time.Since(died), functionTimeout+20*time.Second, "no longer than the lease, and the time to start")
			assert.Equal(t, state.StatusCompleted, statusIn(t, dir, "t-1"))
			assert.Equal(t, map[string]int{"#task#t-1/one": 1, "#task#t-1/two": twice}, effects(t, dir), "a second call carries the same key")
		})
	}
}

func TestFourEnvironmentsAndDuplicatesHaveEachEffectOnce(t *testing.T) {
	dir := t.TempDir()
	const messages, tasks = 50, 30
	waiting := make(chan events.SQSMessage, messages)
	for i := range messages {
		waiting <- taskMessage(t, fmt.Sprint("m", i), task{ID: fmt.Sprint("t-", i%tasks)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var left, pollers sync.WaitGroup
	left.Add(messages)
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	for range 4 {
		e := startEnvironment(t, dir)
		pollers.Go(func() {
			for {
				batch := poll(ctx, waiting, done)
				if len(batch) == 0 {
					return
				}
				again, err := e.deliver(ctx, batch)
				if !assert.NoError(t, err) {
					again = batch
				}
				for _, m := range again {
					waiting <- m
				}
				for range len(batch) - len(again) {
					left.Done()
				}
			}
		})
	}
	pollers.Wait()
	require.NoError(t, ctx.Err(), "everything was acknowledged in time")
	want := map[string]int{}
	for i := range tasks {
		want[fmt.Sprintf("#task#t-%d/one", i)] = 1
		want[fmt.Sprintf("#task#t-%d/two", i)] = 1
	}
	assert.Equal(t, want, effects(t, dir))
}

// poll takes up to five messages; none: everything is acknowledged, or the time is up.
func poll(ctx context.Context, waiting <-chan events.SQSMessage, done <-chan struct{}) (batch []events.SQSMessage) {
	select {
	case m := <-waiting:
		batch = append(batch, m)
	case <-done:
	case <-ctx.Done():
	}
	for len(batch) > 0 && len(batch) < 5 {
		select {
		case m := <-waiting:
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

//go:build linux

package lambdatest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	emulatorModule  = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"
	emulatorVersion = "v0.0.0-20261030222936-bef5c4ba774d"
)

// Emulator is the path of the emulator, which is built once, into the user's cache. Where that can't be done the test is
// skipped, and fails under CI=true.
func Emulator(tb testing.TB) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(tb, err)
	dir := filepath.Join(cache, "tsuzuki-ci", "tools", "aws-lambda-rie-"+emulatorVersion)
	path := filepath.Join(dir, "aws-lambda-rie")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	require.NoError(tb, os.MkdirAll(dir, 0o700))
	// Tests of several packages may be at it at once, and none must find another's half a file.
	bin, err := os.MkdirTemp(dir, "building") //nolint:usetesting // on the file system of path, for the rename
	require.NoError(tb, err)
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.CommandContext(tb.Context(), "go", "install", emulatorModule+"@"+emulatorVersion)
	build.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "GOOS=", "GOARCH=")
	if out, err := build.CombinedOutput(); err != nil {
		missing := fmt.Sprintf("the Lambda runtime interface emulator can't be built, so this was not tested: %v\n%s", err, out)
		if os.Getenv("CI") == "true" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	require.NoError(tb, os.Rename(filepath.Join(bin, "aws-lambda-rie"), path))
	return path
}

// FreeAddress is an address of the loopback interface at which nobody listens.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	require.NoError(tb, l.Close())
	return l.Addr().String()
}

// Function is a program that is run as a function. Keyed literals only.
type Function struct {
	_ struct{}

	// Program is the path of its executable.
	Program string
	// Timeout is when it is killed, in whole seconds.
	Timeout time.Duration
	// Env is added to the environment of the test, "name=value".
	Env []string
}

// Environment is one execution environment: an emulator of its own around a function. Its methods may be called
// concurrently; invocations wait for each other, since a second one at once would end the emulator.
type Environment struct {
	url    string
	client *http.Client
	said   func() string
	mu     sync.Mutex
}

// Start starts an environment, which ends with the test. What it has said is shown when the test fails.
func (f Function) Start(tb testing.TB) *Environment {
	tb.Helper()
	at := FreeAddress(tb)
	cmd := exec.Command(Emulator(tb), "--runtime-interface-emulator-address", at, "--runtime-api-address", FreeAddress(tb), f.Program) //nolint:noctx // it is ended by signals, gently first
	cmd.Env = append(append(os.Environ(), fmt.Sprintf("AWS_LAMBDA_FUNCTION_TIMEOUT=%d", int(f.Timeout/time.Second))), f.Env...)
	e := &Environment{url: "http://" + at + Path, client: &http.Client{Transport: &http.Transport{}}, said: Background(tb, cmd)}
	tb.Cleanup(e.client.CloseIdleConnections)
	Listening(tb, at)
	return e
}

// Path is the path of an emulator's URL that invokes its function.
const Path = "/2015-03-31/functions/function/invocations"

// Listening waits until something listens at the address.
func Listening(tb testing.TB, at string) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		c, err := new(net.Dialer).DialContext(tb.Context(), "tcp", at)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, 20*time.Second, 20*time.Millisecond, "nothing listens at %s", at)
}

// Background starts a command that is ended with the test, with all that it has started. said is what it has said so far,
// which is shown when the test fails.
func Background(tb testing.TB, cmd *exec.Cmd) (said func() string) {
	tb.Helper()
	l := &log{}
	cmd.Stdout, cmd.Stderr = l, l
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	require.NoError(tb, cmd.Start())
	group := -cmd.Process.Pid
	tb.Cleanup(func() {
		_ = syscall.Kill(group, syscall.SIGTERM)
		ended := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		defer ended.Stop()
		_ = cmd.Wait() // it was ended by a signal
		if tb.Failed() {
			tb.Logf("%s has said:\n%s", filepath.Base(cmd.Path), l.text())
		}
	})
	return l.text
}

// Invoke invokes the function with an event, which is encoded unless it is a json.RawMessage, and returns what it answers.
// The death of the function is an answer too, an object with errorType.
func (e *Environment) Invoke(ctx context.Context, event any) (json.RawMessage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	body, err := json.Marshal(event)
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
	return io.ReadAll(resp.Body)
}

// Log is what the function and the emulator have said so far.
func (e *Environment) Log() string { return e.said() }

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package main_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/queue"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// program is the path of the example, built once for all tests.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "payment-test-") //nolint:usetesting // it outlives the test that comes first
		if built.err != nil {
			return
		}
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", exe(built.dir), ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return exe(built.dir)
}

func exe(dir string) string {
	name := "payment"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// folder is where one test's processes run, with a temporary folder of their own.
type folder struct {
	t         *testing.T
	work, tmp string
	env       []string // beside this process's own
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	return &folder{t: t, work: t.TempDir(), tmp: t.TempDir()}
}

func (f *folder) start(name string, args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), name, args...)
	if name != "go" {
		cmd.Dir = f.work
	}
	cmd.Env = append(append(os.Environ(), "TMPDIR="+f.tmp, "TMP="+f.tmp, "GOTMPDIR="+f.work), f.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), errs.String(), exit.ExitCode()
	}
	require.NoError(f.t, err)
	return out.String(), errs.String(), 0
}

func (f *folder) pay(args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	return f.start(program(f.t), args...)
}

func (f *folder) leavesNothing() {
	f.t.Helper()
	left, err := os.ReadDir(f.tmp)
	require.NoError(f.t, err)
	assert.Empty(f.t, left, "left behind in the temporary folder")
}

// waiting is the one line that is missing on a machine so slow that the lease is over before the next process starts.
var waiting = regexp.MustCompile(`(?m)^  run +held by another process.*\n`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the tests with -update to write it")
	assert.Equal(t, waiting.ReplaceAllString(string(want), ""), waiting.ReplaceAllString(got, ""))
	assert.NotContains(t, got, "\x1b", "no colours but on a terminal")
}

// As a newcomer starts it.
func TestWithoutFlagsItSurvivesACrash(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	out, errs, code := f.start("go", "run", ".")
	require.Zero(t, code, errs)
	assert.Empty(t, errs)
	golden(t, "walk", out)
	f.leavesNothing()
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"key":             {"--key", "order-002"},
		"decline":         {"--decline"},
		"timeout":         {"--timeout"},
		"timeout-decline": {"--timeout", "--decline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			out, errs, code := f.pay(args...)
			assert.Zero(t, code)
			assert.Empty(t, errs)
			golden(t, name, out)
			f.leavesNothing()
		})
	}
}

func TestACrashAfterAnyStepIsResumed(t *testing.T) {
	t.Parallel()
	for _, step := range checkout.Steps() {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			var all string
			for _, run := range []struct {
				args []string
				code int
			}{
				{[]string{"--db", "runs.db", "--crash-after", step}, 3},
				{[]string{"--db", "runs.db"}, 0},
				{[]string{"--db", "runs.db"}, 0},
			} {
				out, errs, code := f.pay(run.args...)
				assert.Equal(t, run.code, code)
				assert.Empty(t, errs)
				all += fmt.Sprintf("$ payment %v\n%s\n", run.args, out)
			}
			golden(t, "crash-after-"+step, all)
			f.leavesNothing()
			for _, service := range []string{"provider", "stock", "points"} {
				entries, err := ledger.Open(filepath.Join(f.work, "runs.db."+service+".jsonl")).Entries()
				require.NoError(t, err)
				assert.Len(t, entries, 1, service)
			}
			sent, err := queue.Open(filepath.Join(f.work, "runs.db.queue.jsonl")).Entries()
			require.NoError(t, err)
			require.Len(t, sent, 1)
			assert.Equal(t, "demo#create_order#order-001/notify/0", sent[0].ID)
		})
	}
}

func TestAnOrderThatWasDeclinedStaysDeclined(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	first, _, code := f.pay("--db", "runs.db", "--decline")
	assert.Zero(t, code)
	again, _, code := f.pay("--db", "runs.db") // a provider in a better mood
	assert.Zero(t, code)
	golden(t, "declined-again", first+"\n"+again)
}

// The crash of a process without --db leaves its records where it says, for the next one to go on.
func TestACrashWithoutAFileSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	out, _, code := f.pay("--crash-after", checkout.GrantPoints)
	assert.Equal(t, 3, code)
	said := regexp.MustCompile(`--key (\S+) --db (\S+)\n`).FindStringSubmatch(out)
	require.Len(t, said, 3, out)
	out, _, code = f.pay("--key", said[1], "--db", said[2])
	assert.Zero(t, code)
	assert.Contains(t, out, "ledger: one charge\n")
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	for says, args := range map[string][]string{
		"there is no such step":                     {"--crash-after", "refund"},
		"so there is no --key":                      {"--http", "127.0.0.1:0", "--key", "order-001"},
		"not defined":                               {"--nonsense"},
		`unexpected argument "now"`:                 {"--decline", "now"},
		"are for the provider that this process st": {"--provider", "http://127.0.0.1:1", "--timeout"},
		"it is sqlite or dynamodb":                  {"--store", "postgres"},
		"--endpoint and --table are for":            {"--endpoint", "http://127.0.0.1:1"},
		"are for --store dynamodb":                  {"--table", "runs"},
		"it is empty":                               {"--store", "dynamodb", "--endpoint", ""},
	} {
		out, errs, code := f.pay(args...)
		assert.Equal(t, 2, code, says)
		assert.Empty(t, out)
		assert.Contains(t, errs, says)
		assert.Contains(t, errs, "--crash-after STEP", "the usage")
	}
	_, errs, code := f.pay("--help")
	assert.Zero(t, code)
	assert.Contains(t, errs, "--crash-after STEP")
	f.leavesNothing()
}

func TestErrorsEndWithCode1(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.env = []string{"AWS_REGION=", "AWS_DEFAULT_REGION=", "AWS_PROFILE=", "AWS_CONFIG_FILE=none", "AWS_SHARED_CREDENTIALS_FILE=none"}
	for says, args := range map[string][]string{
		"the ID is empty": {"--key", ""},
		"no answer from":  {"--key", "order-1", "--db", "runs.db", "--provider", "http://127.0.0.1:1"},
		"set AWS_REGION":  {"--key", "order-1", "--store", "dynamodb"},
		"not the URL":     {"--key", "order-1", "--sqs", "orders"},
	} {
		_, errs, code := f.pay(args...)
		assert.Equal(t, 1, code, says)
		assert.Contains(t, errs, says)
	}
	f.leavesNothing()
}

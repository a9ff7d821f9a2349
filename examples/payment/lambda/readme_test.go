//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/internal/lambdatest"
)

// reader is someone who types what the README says, on a machine where ports other than the README's are free.
type reader struct {
	t    *testing.T
	home string
	env  []string
	// blocks are the README's commands: what starts the emulator, what sends orders, and what ticks.
	blocks []string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	lambdatest.Emulator(t) // where it can't be built, this is skipped aloud, and fails under CI=true
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	r := &reader{t: t, home: t.TempDir()}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		r.blocks = append(r.blocks, string(block[1]))
	}
	require.Len(t, r.blocks, 3)
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOCACHE").Output()
	require.NoError(t, err)
	caches := strings.Fields(string(out))
	require.Len(t, caches, 2)
	// What go install leaves goes into the new home as well.
	r.env = append(os.Environ(), "HOME="+r.home, "GOPATH="+filepath.Join(r.home, "go"), "GOBIN=", "GOMODCACHE="+caches[0], "GOCACHE="+caches[1])
	return r
}

func (r *reader) bash(script string) *exec.Cmd {
	cmd := exec.Command("bash", "-euc", script) //nolint:noctx // emulators are ended by signals, gently first
	cmd.Dir, cmd.Env = filepath.Join("..", "..", ".."), r.env
	return cmd
}

const (
	port      = "127.0.0.1:8080"
	emulation = "--runtime-interface-emulator-address " + port
)

// start runs commands that end in an emulator.
func (r *reader) start(script string) (at string, said func() string) {
	r.t.Helper()
	require.Equal(r.t, 1, strings.Count(script, emulation), script)
	at = lambdatest.FreeAddress(r.t)
	script = strings.Replace(script, emulation, "--runtime-interface-emulator-address "+at+" --runtime-api-address "+lambdatest.FreeAddress(r.t), 1)
	said = lambdatest.Background(r.t, r.bash(script))
	lambdatest.Listening(r.t, at)
	return at, said
}

// curl runs the README's command at index i against an emulator, and returns what it prints.
func (r *reader) curl(i int, at string) string {
	r.t.Helper()
	require.Equal(r.t, 1, strings.Count(r.blocks[i], port), r.blocks[i])
	out, err := r.bash(strings.Replace(r.blocks[i], port, at, 1)).Output()
	require.NoError(r.t, err)
	return string(out)
}

// charges are the entries of the provider's books beside this database.
func (r *reader) charges(db string) int {
	r.t.Helper()
	entries, err := ledger.Open(filepath.Join(r.home, "payment", db+".provider.jsonl")).Entries()
	require.NoError(r.t, err)
	return len(entries)
}

// The commands of README.md, as they stand there but for the ports, do what it says.
func TestTheCommandsOfTheREADME(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	at, said := r.start(r.blocks[0])
	assert.JSONEq(t, `{"batchItemFailures":[]}`, r.curl(1, at))
	assert.Equal(t, 4, strings.Count(said(), `"msg":"business_operation_executed"`))
	assert.Equal(t, 1, strings.Count(said(), `"msg":"job_skipped"`))
	assert.Equal(t, 1, r.charges("runs.db"))

	// "With PAYMENT_CRASH_AFTER=charge_card before aws-lambda-rie, and a new PAYMENT_DB".
	run := r.blocks[0][strings.Index(r.blocks[0], "AWS_LAMBDA_FUNCTION_TIMEOUT"):]
	require.Equal(t, 1, strings.Count(run, "runs.db"))
	crashing, _ := r.start("PAYMENT_CRASH_AFTER=charge_card " + strings.Replace(run, "runs.db", "crash.db", 1))
	assert.Contains(t, r.curl(1, crashing), `"errorType":"Runtime.ExitError"`)
	var answer string
	assert.Eventually(t, func() bool {
		before := answer
		answer = r.curl(1, crashing)
		if before == "" {
			assert.JSONEq(t, `{"batchItemFailures":[{"itemIdentifier":"m-1"},{"itemIdentifier":"m-2"}]}`, answer, "the lease is live")
		}
		return answer == `{"batchItemFailures":[]}`
	}, 30*time.Second, 200*time.Millisecond)
	assert.Equal(t, 1, r.charges("crash.db"), "charged twice with one key")

	// "The same program with PAYMENT_SWEEP=1".
	sweeping, _ := r.start("PAYMENT_SWEEP=1 " + run)
	assert.JSONEq(t, `{"recovered":{"Completed":0,"Failed":0,"Interrupted":0,"Blocked":0,"Lost":0},"drained":true}`, r.curl(2, sweeping))
}

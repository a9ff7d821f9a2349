package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	passing = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: chatter\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.002s\n"}
{"Action":"pass","Package":"p","Elapsed":0.003}
`
	skipping = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: needs a server\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
`
	failing = `{"Action":"output","Package":"q","Test":"TestC","Output":"    c_test.go:1: broken\n"}
{"Action":"output","Package":"q","Test":"TestC","Output":"--- FAIL: TestC (0.00s)\n"}
{"Action":"fail","Package":"q","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"q","Output":"FAIL\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.002s\n"}
{"Action":"fail","Package":"q","Elapsed":0.003}
`
	hanging = `{"Action":"output","Package":"r","Test":"TestD","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"r","Output":"FAIL\tr\t1.002s\n"}
{"Action":"fail","Package":"r","Elapsed":1.003}
`
	unbuilt = `{"ImportPath":"s","Action":"build-output","Output":"# s\n"}
{"ImportPath":"s","Action":"build-output","Output":"./s.go:3:1: syntax error\n"}
{"ImportPath":"s","Action":"build-fail"}
{"Action":"output","Package":"s","Output":"FAIL\ts [build failed]\n"}
{"Action":"fail","Package":"s","Elapsed":0,"FailedBuild":"s"}
`
	untested = `{"Action":"output","Package":"u","Output":"?   \tu\t[no test files]\n"}
{"Action":"skip","Package":"u","Elapsed":0}
`
)

func TestReport(t *testing.T) {
	for what, tc := range map[string]struct {
		in      string
		ok      bool
		says    []string
		silence []string
	}{
		"all is well":          {passing + untested, true, []string{"ok  \tp\t0.002s\n", "packages: 1 passed, 0 failed\n", "tests: 1 passed, 0 failed, 0 skipped\n"}, []string{"chatter", "RUN", "no test"}},
		"a test was skipped":   {passing + skipping, true, []string{"p TestB: b_test.go:9: needs a server\n", "1 passed, 0 failed, 1 skipped\n"}, []string{"chatter"}},
		"a test failed":        {passing + failing, false, []string{"c_test.go:1: broken\n--- FAIL: TestC", "FAIL\tq\t0.002s\n", "1 passed, 1 failed, 0 skipped\n"}, []string{"chatter"}},
		"a test never ended":   {passing + hanging, false, []string{"panic: test timed out", "FAIL\tr", "packages: 1 passed, 1 failed"}, nil},
		"a package that won't": {passing + unbuilt, false, []string{"./s.go:3:1: syntax error\n", "FAIL\ts [build failed]\n"}, nil},
		"nothing at all":       {"", false, []string{"no test ran\n"}, nil},
		"nothing but skips":    {skipping, false, []string{"no test ran\n"}, nil},
		"nothing to test":      {untested, false, []string{"no test ran\n"}, nil},
		"no event":             {passing + "go: finding module\n", true, []string{"go: finding module\n"}, nil},
		"the last line is cut": {passing + `{"Action":"out`, true, []string{`{"Action":"out`}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			ok, err := run(strings.NewReader(tc.in), &out)
			require.NoError(t, err)
			assert.Equal(t, tc.ok, ok, out.String())
			for _, s := range tc.says {
				assert.Contains(t, out.String(), s)
			}
			for _, s := range tc.silence {
				assert.NotContains(t, out.String(), s)
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
func (broken) Read([]byte) (int, error)  { return 0, errBroken }

var errBroken = errors.New("broken")

func TestReportThatCantBeMade(t *testing.T) {
	_, err := run(strings.NewReader(passing), broken{})
	require.ErrorIs(t, err, errBroken)
	ok, err := run(broken{}, &bytes.Buffer{})
	require.ErrorIs(t, err, errBroken)
	assert.False(t, ok)
}

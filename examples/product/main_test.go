package main_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden file anew")

// As a newcomer starts it.
func TestTheSecondStepFailsOnceAndIsCaughtUp(t *testing.T) {
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "TMP="+tmp, "GOTMPDIR="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s", &errs)
	assert.Empty(t, errs.String())

	path := filepath.Join("testdata", "walk.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	assert.Equal(t, string(want), out.String())

	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left, "left behind in the temporary folder")
}

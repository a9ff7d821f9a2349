package sagatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// declare is a saga of these steps; "!" marks the pivot.
func declare(version int, names ...string) *saga.Definition[int, steps.None] {
	var declared []steps.Declared[int]
	for _, n := range names {
		s := steps.Do(strings.TrimSuffix(n, "!"), func(context.Context, *steps.Run[int]) error { return errors.New("not now") }).
			NoCompensation().Retry(steps.RetryPolicy{PerRun: 1})
		if strings.HasSuffix(n, "!") {
			s.Pivot()
		}
		declared = append(declared, s)
	}
	return saga.Define("golden", saga.NoResult[int], declared...).Version(version)
}

type noting struct {
	testing.TB
	errors, logs []string
}

func (n *noting) Helper()                   {}
func (n *noting) Errorf(f string, a ...any) { n.errors = append(n.errors, fmt.Sprintf(f, a...)) }
func (n *noting) Logf(f string, a ...any)   { n.logs = append(n.logs, fmt.Sprintf(f, a...)) }
func (n *noting) Fatalf(f string, a ...any) { n.Errorf(f, a...); runtime.Goexit() }

func held(t *testing.T, dir string, d *saga.Definition[int, steps.None], update bool) *noting {
	t.Helper()
	n := &noting{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); golden(n, d.Snapshot(), dir, update) }()
	<-done
	return n
}

// What Golden says is what the library does with a run that was started by the plan before.
func TestGoldenSaysWhatBecomesOfRunsInFlight(t *testing.T) {
	old := func() *saga.Definition[int, steps.None] { return declare(1, "a", "b!", "c") }
	for name, c := range map[string]struct {
		next   *saga.Definition[int, steps.None]
		says   string
		logged bool
	}{
		"the same":                     {next: old()},
		"a step more at the end":       {next: declare(1, "a", "b!", "c", "d"), logged: true},
		"a step removed":               {next: declare(1, "a", "b!"), says: `step 3, "c", was removed`},
		"a step renamed":               {next: declare(1, "a", "b!", "z"), says: `step 3 was "c" and is "z"`},
		"a step inserted":              {next: declare(1, "a", "x", "b!", "c"), says: `step 2 was "b" and is "x"`},
		"another pivot":                {next: declare(1, "a", "b", "c!"), says: `the pivot was "b" and is "c"`},
		"another version":              {next: declare(2, "a"), says: "version 1 is not declared any more"},
		"another version, the old too": {next: declare(2, "a").Previous(old()), logged: true},
		"the old one kept, but wrong":  {next: declare(2, "a").Previous(declare(1, "b")), says: `version 1: step 1 was "a" and is "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "testdata")
			require.Empty(t, held(t, dir, old(), true).errors)
			got := held(t, dir, c.next, false)
			assert.Equal(t, c.logged, len(got.logs) > 0, got.logs)
			if c.says == "" {
				assert.Empty(t, got.errors)
			} else {
				require.Len(t, got.errors, 1)
				assert.Contains(t, got.errors[0], c.says)
				assert.Contains(t, got.errors[0], "-sagatest.update")
			}

			store := memory.New()
			o, err := saga.New(old(), store)
			require.NoError(t, err)
			_, err = o.Run(t.Context(), saga.Key{ID: "1"}, 1)
			require.ErrorIs(t, err, saga.ErrInterrupted)
			o, err = saga.New(c.next, store)
			require.NoError(t, err)
			_, err = o.Resume(t.Context(), saga.Key{ID: "1"})
			assert.Equal(t, c.says != "", errors.Is(err, saga.ErrDefinitionChanged), "the library says: %v", err)
		})
	}
}

func TestGoldenWithoutAStoredPlan(t *testing.T) {
	dir := t.TempDir()
	got := held(t, dir, declare(0, "a"), false)
	require.Len(t, got.errors, 1)
	assert.Contains(t, got.errors[0], "store it with: go test -run '^TestGoldenWithoutAStoredPlan$' . -sagatest.update")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "golden.json"), []byte("{"), 0o600))
	got = held(t, dir, declare(0, "a"), false)
	require.Len(t, got.errors, 1)
	assert.Contains(t, got.errors[0], "can't be read")
}

// The exported way, with the plan that lies in testdata.
func TestGolden(t *testing.T) { Golden(t, declare(1, "a", "b!", "c")) }

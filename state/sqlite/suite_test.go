package sqlite

import (
	"flag"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// suites is how many copies of the suite TestStore runs at once: go test -race ./state/sqlite -run 'TestStore$' -suites 20
var suites = flag.Int("suites", 1, "how many copies of the suite TestStore runs at once")

func TestStore(t *testing.T) {
	t.Parallel()
	for n := range *suites {
		t.Run(strconv.Itoa(n+1), func(t *testing.T) {
			t.Parallel()
			suite(t)
		})
	}
}

// TestStoreThatReads takes the long way for every write, and so does the suite for the writes that seldom take it.
func TestStoreThatReads(t *testing.T) {
	t.Parallel()
	suite(t, oblivious())
}

// TestSmallStore keeps records that are filled up in a moment.
func TestSmallStore(t *testing.T) {
	t.Parallel()
	suite(t, WithMaxRecord(600<<10))
}

func suite(t *testing.T, opts ...Option) {
	t.Helper()
	statetest.Run(t, func(t *testing.T) state.Store {
		return open(t, filepath.Join(t.TempDir(), "runs.db"), opts...)
	}, statetest.Reopen(func(t *testing.T, s state.Store) state.Store {
		t.Helper()
		old := s.(*Store)
		require.NoError(t, old.Close())
		return open(t, old.path, opts...)
	}))
}

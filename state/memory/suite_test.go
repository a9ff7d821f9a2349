package memory_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// suites is how many copies of the suite TestStore runs at once: go test -race ./state/memory -run 'TestStore$' -suites 20
var suites = flag.Int("suites", 1, "how many copies of the suite TestStore runs at once")

func TestStore(t *testing.T) {
	t.Parallel()
	for n := range *suites {
		t.Run(strconv.Itoa(n+1), func(t *testing.T) {
			t.Parallel()
			statetest.Run(t, func(*testing.T) state.Store { return memory.New() })
		})
	}
}

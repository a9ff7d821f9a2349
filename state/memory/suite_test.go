package memory_test

import (
	"testing"

	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(*testing.T) state.Store { return memory.New() })
}

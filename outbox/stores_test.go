package outbox_test

import (
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

func TestEverythingArrivesInOrderThroughDeathsAndOutages(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		t.Logf("%d copies too many", chaos(t, memory.New(), 1000, 200*time.Millisecond))
	})
}

package sagatest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/internal/crashtest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
)

// The sagas of these tests survive on every store. On the slow ones not every fault strikes, but each kind has its turn.
func TestSagasSurviveOnEveryStore(t *testing.T) {
	struck := map[string]map[string]bool{} // by store
	t.Run("travel", func(t *testing.T) { survives(t, struck, travel) })
	t.Run("sold out", func(t *testing.T) { survives(t, struck, soldOut) })
	t.Run("transfer", func(t *testing.T) { survives(t, struck, transfer) })
	t.Run("checkout", func(t *testing.T) { survives(t, struck, checkout) })
	for store, faults := range struck {
		assert.Len(t, faults, 8, store)
	}
}

func survives[Out any](t *testing.T, struck map[string]map[string]bool, newSaga func(*sagatest.Recorder) *saga.Definition[purchase, Out]) {
	t.Helper()
	crashtest.OnEachStore(t, func(t *testing.T, opts ...sagatest.CrashOption) sagatest.CrashReport {
		t.Helper()
		report := sagatest.Crash(t, newSaga, purchaseKey, somePurchase, opts...)
		store := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		if struck[store] == nil {
			struck[store] = map[string]bool{}
		}
		for f := range report.Faults {
			struck[store][f] = true
		}
		return report
	})
}

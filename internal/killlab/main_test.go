package killlab

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// These name, in the environment, what this test binary is to be in place of its tests, and what it is told.
const (
	childVariable = "TSUZUKI_KILLLAB_CHILD"
	toldVariable  = "TSUZUKI_KILLLAB_TOLD"
)

// told is what a child process is told.
type told struct {
	// Seed of what is random in the process.
	Seed uint64
	// Ledger is the ledger's address, for a worker; its file, for the ledger itself.
	Ledger string
	// Store and Place say where the records are.
	Store, Place string
	// Worker is its number.
	Worker int
}

func TestMain(m *testing.M) {
	child := os.Getenv(childVariable)
	if child == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := beChild(child); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", child, err)
		os.Exit(1)
	}
}

func beChild(name string) error {
	var to told
	if err := json.Unmarshal([]byte(os.Getenv(toldVariable)), &to); err != nil {
		return err
	}
	switch name {
	case "ledger":
		return beLedger(to)
	case "worker":
		return beWorker(to)
	}
	return fmt.Errorf("no child is called %q", name)
}

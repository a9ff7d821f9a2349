package saga_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVariable names, in the environment, what this test binary is to do in place of its tests: tests about processes
// start it again as a process of their own.
const childVariable = "TSUZUKI_TEST_CHILD"

// children are what such a process may be told to do, by name. Test files add theirs in an init function. The result is
// the exit code.
var children = map[string]func() int{}

func TestMain(m *testing.M) {
	name := os.Getenv(childVariable)
	if name == "" {
		goleak.VerifyTestMain(m)
		return
	}
	child, known := children[name]
	if !known {
		fmt.Fprintf(os.Stderr, "no child is called %q\n", name)
		os.Exit(64)
	}
	os.Exit(child())
}

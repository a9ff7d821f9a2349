package dynamostore_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(procName); name != "" { // one of the processes that TestSixteenProcessesOnOneKeyWithFaults starts
		exit(processMain(context.Background(), name))
	}
	if os.Getenv(nullName) != "" {
		exit(nullServer())
	}
	goleak.VerifyTestMain(m)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

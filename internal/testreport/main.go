// Command testreport reads what go test -json writes and prints what a person wants to know of it: a line for each
// package, all the output of what failed, each skipped test with its reason, and a count. It ends with 1 when anything
// failed, and when no test ran at all: a green run that tested nothing is not green.
//
//	go test -json ./... | go run ./internal/testreport
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

func main() {
	ok, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports on in and tells whether all is well.
func run(in io.Reader, out io.Writer) (bool, error) {
	r := newReport(out)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return r.finish(), r.err
		}
		if err != nil {
			return false, err
		}
	}
}

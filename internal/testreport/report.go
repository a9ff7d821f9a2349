package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc cmd/test2json.
type event struct {
	Action     string `json:"Action"`
	Package    string `json:"Package"`
	ImportPath string `json:"ImportPath"` // of a build's events
	Test       string `json:"Test"`
	Output     string `json:"Output"`
}

// name is a test within a package; the empty test is the package itself.
type name struct{ pkg, test string }

type report struct {
	out io.Writer
	err error // the first failure to print

	held    map[name][]string // what is printed only if it turns out to matter
	skips   []string
	ok      int // packages
	bad     int // packages and builds
	passed  int
	failed  int
	skipped int
}

func newReport(out io.Writer) *report {
	return &report{out: out, held: map[name][]string{}}
}

func (r *report) print(lines ...string) {
	for _, l := range lines {
		if _, err := io.WriteString(r.out, l); err != nil && r.err == nil {
			r.err = err
		}
	}
}

// line takes one line of input. What is not an event comes from the go command itself and is printed.
func (r *report) line(raw []byte) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil || e.Action == "" {
		r.print(string(raw))
		return
	}
	switch id := (name{e.Package, e.Test}); e.Action {
	case "output":
		r.output(id, e.Output)
	case "build-output":
		r.print(e.Output)
	case "build-fail":
		r.bad++
	case "pass", "fail", "skip":
		r.ended(id, e.Action)
	}
}

func (r *report) output(id name, text string) {
	if id.test == "" && (strings.HasPrefix(text, "ok  \t") || strings.HasPrefix(text, "FAIL\t")) {
		if strings.HasPrefix(text, "FAIL\t") {
			r.flush(id.pkg) // before the line that sums it up
		}
		r.print(text)
		return
	}
	if t := strings.TrimSpace(text); strings.HasPrefix(t, "=== ") || id.test == "" && (t == "PASS" || t == "FAIL") {
		return
	}
	r.held[id] = append(r.held[id], text)
}

func (r *report) ended(id name, how string) {
	switch {
	case id.test == "" && how == "pass":
		r.ok++
		r.forget(id.pkg)
	case id.test == "" && how == "fail":
		r.bad++
		r.flush(id.pkg)
	case id.test == "":
		r.forget(id.pkg) // a package without tests
	case how == "pass":
		r.passed++
		delete(r.held, id)
	case how == "fail":
		r.failed++
		r.print(r.held[id]...)
		delete(r.held, id)
	default:
		r.skipped++
		r.skips = append(r.skips, fmt.Sprintf("  %s %s: %s\n", id.pkg, id.test, reason(r.held[id])))
		delete(r.held, id)
	}
}

// reason is what a skipped test said, without the lines that go test adds.
func reason(output []string) string {
	var said []string
	for _, l := range output {
		if t := strings.TrimSpace(l); t != "" && !strings.HasPrefix(t, "--- SKIP: ") {
			said = append(said, t)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// flush prints what is held of a package: its own output, and that of tests that never ended.
func (r *report) flush(pkg string) {
	ids := slices.SortedFunc(maps.Keys(r.held), func(a, b name) int { return strings.Compare(a.test, b.test) })
	for _, id := range ids {
		if id.pkg == pkg {
			r.print(r.held[id]...)
			delete(r.held, id)
		}
	}
}

func (r *report) forget(pkg string) {
	maps.DeleteFunc(r.held, func(id name, _ []string) bool { return id.pkg == pkg })
}

// finish prints the end of the report, and tells whether all is well.
func (r *report) finish() bool {
	if len(r.skips) > 0 {
		r.print("\nskipped:\n")
		r.print(r.skips...)
	}
	r.print(fmt.Sprintf("\npackages: %d passed, %d failed\n", r.ok, r.bad))
	r.print(fmt.Sprintf("tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped))
	if r.passed+r.failed == 0 {
		r.print("no test ran\n")
		return false
	}
	return r.bad == 0 && r.failed == 0
}

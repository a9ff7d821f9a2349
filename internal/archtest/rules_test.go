package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// layers are the core packages, lowest first: outbox ← state ← steps ← compensate ← saga.
var layers = []string{"outbox", "state", "steps", "compensate", "saga"}

// linkable is all that the core may link beside the standard library and the module itself. A driver or an SDK would have
// to be put on this list, where it would be seen.
var linkable = []string{
	"github.com/cenkalti/backoff/v4", // retry, with jitter
	"go.uber.org/zap",                // the logger that saga.WithLogger takes
	"go.uber.org/multierr",           // zap's own
}

// neverInCore stand in the standard library and are drivers all the same, or drag the test framework along.
var neverInCore = []string{"database/sql", "testing"}

// forTests are linked by test code alone.
var forTests = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "testing"}

// suites are exported for the tests of others, and so link testify and testing without being tests.
var suites = []string{"state/statetest", "saga/sagatest"}

// check returns what is wrong with g, sorted.
func check(g graph) []string {
	var wrong []string
	for path, p := range g {
		rel, ok := local(path)
		if !ok {
			continue
		}
		for _, dep := range append(slices.Clone(p.Deps), p.Imports...) {
			wrong = append(wrong, checkPair(rel, dep, g[dep])...)
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// checkPair judges that the package rel links dep, directly or not.
func checkPair(rel, dep string, to pkg) []string {
	var wrong []string
	say := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s links %s: ", rel, dep)+fmt.Sprintf(format, args...))
	}
	depRel, ours := local(dep)
	if ours {
		if why := checkArrow(rel, depRel); why != "" {
			say("%s", why)
		}
		if forTestsOnly(depRel) && !forTestsOnly(rel) {
			say("%s is for tests", depRel)
		}
	}
	if slices.Contains(layers, rel) && !ours {
		switch {
		case under(dep, neverInCore...):
			say("a core package may not")
		case !to.Standard && !under(dep, linkable...):
			say("not among what a core package may link (drivers and SDKs live one folder down)")
		}
	}
	if under(dep, forTests...) && !forTestsOnly(rel) {
		say("test code, %s and internal test helpers alone may", strings.Join(suites, ", "))
	}
	return wrong
}

// checkArrow says why rel may not link dep, both of this module; empty: it may.
func checkArrow(rel, dep string) string {
	from, to := layer(rel), layer(dep)
	switch {
	case from < 0 || dep == rel || under(dep, "internal"):
		return "" // internal packages and programs are judged by what the layers link through them
	case to < 0:
		return "neither a layer nor internal"
	case to > from:
		return fmt.Sprintf("the arrow runs %s ← %s", layers[from], layers[to])
	case slices.Contains(layers, rel) && !slices.Contains(layers, dep):
		return "a core package knows nothing of what lives below a layer"
	}
	return ""
}

// layer is the position of the layer that the package is, or lives below; -1 for none.
func layer(rel string) int {
	return slices.IndexFunc(layers, func(l string) bool { return under(rel, l) })
}

// forTestsOnly tells whether the package exists for tests: an exported suite, or an internal helper named like one.
func forTestsOnly(rel string) bool {
	return under(rel, suites...) || under(rel, "internal") && strings.HasSuffix(rel, "test")
}

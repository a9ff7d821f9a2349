package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/simulation/laws"
	"github.com/tsuzuki-go/tsuzuki/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seeds   = flag.Int("seeds", 400, "how many seeds to simulate")
	from    = flag.Uint64("from", 1, "the first of them")
	seed    = flag.Uint64("seed", 0, "simulate this seed alone, and print what happened")
	most    = flag.Int("steps", 8, "the most steps of a saga")
	workers = flag.Int("workers", 5, "the most workers")
	events  = flag.Int("events", 250, "the events before everything is healed")
	without = flag.String("without", "", "what may not go wrong, separated by commas")
)

// played is what one run came to.
type played struct {
	wrong       []string
	trace       []string
	events      int
	met         map[verdict]int
	transitions map[laws.Transition]int
}

func play(t *testing.T, cfg config) (p played) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s := newSim(cfg)
		p.wrong = s.play()
		p.trace, p.events, p.met, p.transitions = s.trace, s.events, s.met, s.book.Transitions()
	})
	return p
}

func TestSimulation(t *testing.T) {
	base := config{steps: *most, workers: *workers, events: *events}
	for _, name := range strings.Split(*without, ",") {
		if name != "" {
			base.without = append(base.without, verdict(name))
		}
	}
	if *seed != 0 {
		base.seed = *seed
		p := play(t, base)
		t.Log(strings.Join(p.trace, "\n"))
		assert.Empty(t, p.wrong)
		return
	}
	met, transitions, total := map[verdict]int{}, map[laws.Transition]int{}, 0
	for i := range *seeds {
		cfg := base
		cfg.seed = *from + uint64(i)
		p := play(t, cfg)
		total += p.events
		for v, n := range p.met {
			met[v] += n
		}
		for tr, n := range p.transitions {
			transitions[tr] += n
		}
		if len(p.wrong) > 0 {
			small, q := shrink(t, cfg, p)
			t.Fatalf("seed %d:\n  - %s\nmade smaller, it is:\n  - %s\nagain: %s\nafter %d of %d seeds",
				cfg.seed, strings.Join(p.wrong, "\n  - "), strings.Join(q.wrong, "\n  - "), small.command(), i+1, *seeds)
		}
	}
	t.Logf("%d seeds from %d, %d events, all kept the laws", *seeds, *from, total)
	t.Logf("what went wrong: %s", counts(met))
	t.Logf("transitions: %s", counts(transitions))
	if len(base.without) > 0 || *seeds < 300 {
		return
	}
	for _, v := range faults {
		assert.Positive(t, met[v], "%q never happened", v)
	}
	for _, a := range state.Statuses() {
		for _, b := range state.Statuses() {
			if a.CanBecome(b) {
				assert.Positive(t, transitions[laws.Transition{From: a, To: b}], "%s never became %s", a, b)
			}
		}
	}
}

// shrink looks for a smaller run of the same seed that is still wrong.
func shrink(t *testing.T, cfg config, p played) (config, played) {
	t.Helper()
	same := kind(p.wrong[0])
	try := func(smaller config) bool {
		q := play(t, smaller)
		if !slices.ContainsFunc(q.wrong, func(w string) bool { return kind(w) == same }) {
			return false
		}
		cfg, p = smaller, q
		return true
	}
	for _, v := range faults {
		smaller := cfg
		smaller.without = append(slices.Clone(cfg.without), v)
		try(smaller)
	}
	for cfg.workers > 1 {
		smaller := cfg
		smaller.workers--
		if !try(smaller) {
			break
		}
	}
	for cfg.steps > 1 {
		smaller := cfg
		smaller.steps--
		if !try(smaller) {
			break
		}
	}
	for cut := cfg.events / 2; cut > 0; cut /= 2 {
		for cfg.events > cut {
			smaller := cfg
			smaller.events -= cut
			if !try(smaller) {
				break
			}
		}
	}
	return cfg, p
}

// kind is the words with which a complaint begins.
func kind(wrong string) string {
	words := strings.Fields(wrong)
	return strings.Join(words[:min(len(words), 3)], " ")
}

func counts[K comparable](m map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%v %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

// A seed is the whole run: what a failure prints repeats it.
func TestASeedIsAlwaysTheSameRun(t *testing.T) {
	for s := range uint64(40) {
		cfg := config{seed: 1000 + s, steps: 8, workers: 5, events: 250}
		a, b := play(t, cfg), play(t, cfg)
		if !assert.Equal(t, a.trace, b.trace, "seed %d", cfg.seed) {
			return
		}
	}
}

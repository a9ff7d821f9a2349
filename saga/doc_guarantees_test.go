package saga_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const guaranteesPage = "../docs/guarantees.md"

var docQuoted = regexp.MustCompile("`([^`]+)`")

// docWords are what stands between back quotes in a cell; none for "nothing".
func docWords(cell string) []string {
	if !strings.Contains(cell, "`") && cell != "nothing" {
		return []string{cell}
	}
	out := []string{}
	for _, m := range docQuoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// docScene is the saga of the page, with a place where something happens.
type docScene struct {
	// at is "before a", "after a", "before undo a" or "after undo a": where happens is called, once.
	at string
	// write is the write at which it happens instead: before it, or after it when made is set.
	write sagatest.Match
	made  bool
	// refuse: c is refused for good. transient: the first call of b fails, its effect made.
	refuse, transient bool
	// pivot and atMostOnce are declared on b, and a Probe that answers found.
	pivot, atMostOnce, probe, found bool
}

// docStage is a scene as it is played: one store, and several processes one after the other.
type docStage struct {
	docScene
	t       *testing.T
	clk     *clock.Fake
	inner   *memory.Store
	happens func()

	mu    sync.Mutex
	calls []string
	over  bool
}

func newDocStage(t *testing.T, s docScene) *docStage {
	t.Helper()
	clk := new(clock.Fake)
	clk.AutoAdvance()
	return &docStage{docScene: s, t: t, clk: clk, inner: memory.New(memory.WithClock(clk))}
}

// happening calls happens at its place, the first time that the scene comes there.
func (s *docStage) happening(place string) {
	s.mu.Lock()
	now := place == s.at && !s.over && s.happens != nil
	s.over = s.over || now
	s.mu.Unlock()
	if now {
		s.happens()
	}
}

func (s *docStage) called(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// since are the calls since the last look.
func (s *docStage) since() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]string{}, s.calls...)
	s.calls = nil
	return out
}

func (s *docStage) definition() *saga.Definition[int, steps.None] {
	failed := false
	var declared []steps.Declared[int]
	for _, name := range []string{"a", "b", "c"} {
		step := steps.Do(name, func(context.Context, *steps.Run[int]) error {
			s.happening("before " + name)
			s.called(name)
			s.happening("after " + name)
			if name == "c" && s.refuse {
				return steps.Permanent(errors.New("refused"))
			}
			if name == "b" && s.transient && !failed {
				failed = true
				return errors.New("no answer")
			}
			return nil
		})
		step.Compensate(func(_ context.Context, _ *steps.Run[int], did steps.Outcome[steps.None]) error {
			s.happening("before undo " + name)
			call := "undo " + name
			if !did.Known {
				call += ", unknown"
			}
			s.called(call)
			s.happening("after undo " + name)
			return nil
		})
		if name == "b" {
			s.declare(step)
		}
		if !s.atMostOnce || name != "b" {
			step.Retry(steps.RetryPolicy{PerRun: 1})
		}
		declared = append(declared, step)
	}
	return saga.Define("abc", saga.NoResult, declared...)
}

func (s *docStage) declare(b *steps.Step[int, steps.None]) {
	if s.pivot {
		b.Pivot()
	}
	if s.atMostOnce {
		b.AtMostOnce()
	}
	if s.probe {
		b.Probe(func(context.Context, *steps.Run[int]) (steps.None, bool, error) {
			s.called("probe b")
			return steps.None{}, s.found, nil
		})
	}
}

var guaranteesKey = saga.Key{Tenant: "t", ID: "1"}

func (s *docStage) process(store state.Store) *saga.Orchestrator[int, steps.None] {
	s.t.Helper()
	o, err := saga.New(s.definition(), store, saga.WithClock(s.clk))
	require.NoError(s.t, err)
	return o
}

// recorded is the status of the run and of its steps.
func (s *docStage) recorded() []string {
	s.t.Helper()
	rec, err := s.inner.Get(s.t.Context(), "t#abc#1")
	if errors.Is(err, state.ErrNotFound) {
		return []string{}
	}
	require.NoError(s.t, err)
	out := []string{string(rec.Status)}
	for _, step := range rec.Steps {
		out = append(out, string(step.Status))
	}
	return out
}

// again makes the same request in a new process, once the lease of whoever held the run is over.
func (s *docStage) again() (status string) {
	s.t.Helper()
	s.clk.Advance(saga.DefaultLease + time.Second)
	var info saga.RunInfo
	_, err := s.process(s.inner).Run(s.t.Context(), guaranteesKey, 1, saga.Report(&info))
	require.Equal(s.t, info.Status == state.StatusCompleted, err == nil, "%s and %v", info.Status, err)
	return string(info.Status)
}

// eachDocRow plays every row of a table; each must have its scene, and each scene its row.
func eachDocRow(t *testing.T, head string, scenes map[string]docScene, play func(t *testing.T, s *docStage, row []string)) {
	t.Helper()
	rows := docTables(t, guaranteesPage)[head]
	assert.Len(t, rows, len(scenes))
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			sc, ok := scenes[row[0]]
			require.True(t, ok, "no scene for this row")
			play(t, newDocStage(t, sc), row)
		})
	}
}

// docDies plays a row of a table of deaths: what is recorded then, what the next run calls, how it ends.
func docDies(t *testing.T, s *docStage, row []string) {
	t.Helper()
	store := sagatest.NewFaultyStore(s.inner)
	s.happens = store.Die
	if s.write != nil {
		store.On(s.write, func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
			if s.made {
				_ = send(ctx)
			}
			store.Die()
			return sagatest.ErrDead
		})
	}
	_, err := s.process(store).Run(t.Context(), guaranteesKey, 1)
	require.ErrorIs(t, err, sagatest.ErrDead, "the process must die in this scene")
	assert.Equal(t, docWords(row[1]), s.recorded(), "recorded then")
	before := s.since()
	ends := s.again()
	assert.Equal(t, docWords(row[2]), s.since(), "called by the next run, after %v", before)
	assert.Equal(t, docWords(row[3])[0], ends)
}

const docDeaths = "the process dies recorded then the next run calls and ends as"

func TestGuaranteesAboutDeaths(t *testing.T) {
	done := func(step string) sagatest.Match { return sagatest.Records(step, state.StepDone) }
	eachDocRow(t, docDeaths, map[string]docScene{
		"before the record is created":                         {write: sagatest.Method("Create")},
		"after the record is created":                          {write: sagatest.Method("Create"), made: true},
		"before `a` takes effect":                              {at: "before a"},
		"after `a` has taken effect, before that is recorded":  {at: "after a"},
		"after `a` is recorded":                                {write: done("a"), made: true},
		"after `b` has taken effect, before that is recorded":  {at: "after b"},
		"after `c` has taken effect, before the closing write": {at: "after c"},
		"after the closing write":                              {write: done("c"), made: true},
		"after `c` is refused, before the turn is recorded":    {refuse: true, at: "after c"},
		"after the turn is recorded, before the first undo":    {refuse: true, write: sagatest.Becomes(state.StatusCompensating), made: true},
		"after `b` is undone, before that is recorded":         {refuse: true, at: "after undo b"},
		"after the undo of `b` is recorded":                    {refuse: true, write: sagatest.Records("b", state.StepCompensated), made: true},
		"after `a` is undone, before the closing write":        {refuse: true, at: "after undo a"},
		"after the closing write of the failure":               {refuse: true, write: sagatest.Becomes(state.StatusFailed), made: true},
		"before the mark of `b`":                               {atMostOnce: true, write: sagatest.Records("b", state.StepStarted)},
		"after the mark of `b`, before its call":               {atMostOnce: true, write: sagatest.Records("b", state.StepStarted), made: true},
		"after the call of `b`, before its record":             {atMostOnce: true, at: "after b"},
		"after the call of `b`, which a `Probe` finds":         {atMostOnce: true, at: "after b", probe: true, found: true},
		"after the mark of `b`, which a `Probe` does not find": {atMostOnce: true, at: "before b", probe: true},
	}, docDies)
}

func TestGuaranteesAboutLostAnswers(t *testing.T) {
	done := func(step string) sagatest.Match { return sagatest.Records(step, state.StepDone) }
	eachDocRow(t, "the lost answer this run calls and ends as", map[string]docScene{
		"of the create":                   {write: sagatest.Method("Create"), made: true},
		"of the record of `a`":            {write: done("a"), made: true},
		"of a record that was never made": {write: done("a")},
		"of the closing write":            {write: done("c"), made: true},
	}, func(t *testing.T, s *docStage, row []string) {
		fault := sagatest.Fail(sagatest.ErrNoAnswer)
		if s.made {
			fault = sagatest.LoseAnswer()
		}
		store := sagatest.NewFaultyStore(s.inner).On(s.write, fault)
		_, err := s.process(store).Run(t.Context(), guaranteesKey, 1)
		require.NoError(t, err)
		assert.Equal(t, docWords(row[1]), s.since())
		assert.Equal(t, docWords(row[2]), s.recorded()[:1])
	})
}

func TestGuaranteesAboutAStoreThatGoesAway(t *testing.T) {
	everything := func(sagatest.StoreCall) bool { return true }
	eachDocRow(t, "the store goes away what was called recorded then the next run calls and ends as", map[string]docScene{
		"before the record is created":         {write: sagatest.Method("Create")},
		"when `b` has taken effect":            {at: "after b"},
		"with the answer of the closing write": {write: sagatest.Records("c", state.StepDone), made: true},
	}, func(t *testing.T, s *docStage, row []string) {
		store := sagatest.NewFaultyStore(s.inner)
		away := func() { store.Always(everything, sagatest.Fail(sagatest.ErrNoAnswer)) }
		s.happens = away
		if s.write != nil {
			store.On(s.write, func(ctx context.Context, _ sagatest.StoreCall, send func(context.Context) error) error {
				if s.made {
					_ = send(ctx)
				}
				away()
				return sagatest.ErrNoAnswer
			})
		}
		_, err := s.process(store).Run(t.Context(), guaranteesKey, 1)
		require.ErrorIs(t, err, saga.ErrStore)
		assert.Equal(t, docWords(row[1]), s.since(), "called")
		assert.Equal(t, docWords(row[2]), s.recorded(), "recorded then")
		ends := s.again()
		assert.Equal(t, docWords(row[3]), s.since(), "called by the next run")
		assert.Equal(t, docWords(row[4])[0], ends)
	})
}

func TestGuaranteesAboutCancel(t *testing.T) {
	eachDocRow(t, "the request comes answer what is called after it and ends as", map[string]docScene{
		"while nobody is at work, `b` interrupted":              {transient: true},
		"while `b` is being called":                             {at: "after b"},
		"while `b` is being called, and the process dies there": {at: "after b", made: true},
		"while `c`, the last step, is being called":             {at: "after c"},
		"while the run goes backwards already":                  {refuse: true, at: "after undo b"},
		"while `b`, a pivot, is being called":                   {pivot: true, at: "after b"},
		"after `b`, a pivot, is done":                           {pivot: true, at: "before c"},
		"after the end":                                         {},
	}, func(t *testing.T, s *docStage, row []string) {
		store := sagatest.NewFaultyStore(s.inner)
		other := s.process(s.inner)
		var answer error
		cancel := func() {
			s.since()
			answer = other.Cancel(t.Context(), guaranteesKey, "by the test")
			if s.made {
				store.Die()
			}
		}
		s.happens = cancel
		_, err := s.process(store).Run(t.Context(), guaranteesKey, 1)
		if s.at == "" {
			assert.Equal(t, s.transient, errors.Is(err, saga.ErrInterrupted), "%v", err)
			cancel()
		}
		if s.made {
			s.again()
		}
		if row[1] == "nil" {
			require.NoError(t, answer)
		} else {
			require.ErrorIs(t, answer, saga.ErrNotAllowed)
			assert.Equal(t, []string{"ErrNotAllowed"}, docWords(row[1]))
		}
		assert.Equal(t, docWords(row[2]), s.since())
		assert.Equal(t, docWords(row[3]), s.recorded()[:1])
	})
}

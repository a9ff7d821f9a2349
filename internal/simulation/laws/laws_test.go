package laws_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/internal/simulation/laws"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const runKey = "t#op#1"

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// def is two steps with compensations, and one without behind them; the second is the pivot.
func def() drive.Definition {
	undo := func(context.Context, *drive.Call, bool, json.RawMessage) drive.Result { return drive.Result{} }
	return drive.Definition{Name: "op", Steps: []drive.Step{{Name: "a", Undo: undo}, {Name: "b", Undo: undo, Pivot: true}, {Name: "c"}}}
}

// scene is a run that a book follows.
type scene struct {
	t     *testing.T
	book  *laws.Book
	store *laws.Store
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, book: laws.NewBook(def())}
	clk := new(clock.Fake)
	clk.Set(at)
	s.store = laws.Watch(memory.New(memory.WithClock(clk)), s.book, runKey)
	existing, err := s.store.Create(t.Context(), &state.Record{
		Key: runKey, Operation: "op", Plan: []string{"a", "b", "c"}, Pivot: "b", Status: state.StatusInProgress, CurrentStep: "a", Retention: time.Hour,
		Steps: []state.StepRecord{{Name: "a", Status: state.StepPending}, {Name: "b", Status: state.StepPending}, {Name: "c", Status: state.StepPending}},
		Input: json.RawMessage("1"), Owner: "w", WriteID: "0", Runs: 1, Revision: 1, CreatedAt: at, UpdatedAt: at, LeaseUntil: at.Add(time.Minute),
	})
	require.NoError(t, err)
	require.Nil(t, existing)
	return s
}

// write commits a change that edit makes of one that leaves all as it is.
func (s *scene) write(edit func(*state.Change)) {
	s.t.Helper()
	r := s.book.Record()
	ch := &state.Change{
		Key: runKey, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: "w", Owner: r.Owner, Runs: r.Runs, Status: r.Status, EndsAs: r.EndsAs,
		CurrentStep: r.CurrentStep, LeaseUntil: r.LeaseUntil, UpdatedAt: at, Failure: r.Failure,
	}
	edit(ch)
	require.NoError(s.t, s.store.Commit(s.t.Context(), ch))
}

func (s *scene) is(i int, status state.StepStatus, more ...func(*state.StepRecord)) func(*state.Change) {
	rec := state.StepRecord{Name: []string{"a", "b", "c"}[i], Status: status}
	if status == state.StepDone {
		rec.Output = json.RawMessage("1")
	}
	for _, f := range more {
		f(&rec)
	}
	return func(ch *state.Change) { ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: rec}) }
}

func becomes(status state.Status, more ...func(*state.Change)) func(*state.Change) {
	return func(ch *state.Change) {
		ch.Status = status
		switch status {
		case state.StatusCompensating:
			ch.EndsAs, ch.Failure = state.StatusFailed, &state.Failure{Code: "x", At: at}
		case state.StatusInProgress:
		default:
			ch.Owner, ch.LeaseUntil = "", time.Time{}
		}
		if status.Ended() {
			ch.ExpiresAt = at.Add(time.Hour)
		}
		for _, f := range more {
			f(ch)
		}
	}
}

// An ordinary run, forward and backward, breaks no law.
func TestAnOrdinaryRunKeepsTheLaws(t *testing.T) {
	s := newScene(t)
	s.book.MayStart(s.book.Record(), "a", drive.Do)
	s.write(s.is(0, state.StepDone))
	s.book.MayStart(s.book.Record(), "b", drive.Do)
	s.write(becomes(state.StatusCompensating))
	s.book.MayStart(s.book.Record(), "a", drive.Undo)
	s.write(becomes(state.StatusFailed, s.is(0, state.StepCompensated)))
	assert.Empty(t, s.book.Broken())
	assert.Equal(t, map[laws.Transition]int{
		{From: "", To: state.StatusInProgress}:                       1,
		{From: state.StatusInProgress, To: state.StatusInProgress}:   1,
		{From: state.StatusInProgress, To: state.StatusCompensating}: 1,
		{From: state.StatusCompensating, To: state.StatusFailed}:     1,
	}, s.book.Transitions())
	assert.True(t, s.book.WasDone("a"))
}

func TestEachLawSeesWhatBreaksIt(t *testing.T) {
	unknown := func(r *state.StepRecord) { r.Unknown = true }
	type edits = []func(*state.Change)
	for law, c := range map[string]func(s *scene) edits{
		`"legal transitions": step a was DONE`: func(s *scene) edits { return edits{s.is(0, state.StepDone), s.is(0, state.StepPending)} },
		`"steps in order"`:                     func(s *scene) edits { return edits{s.is(1, state.StepDone)} },
		`"completed is complete"`:              func(s *scene) edits { return edits{becomes(state.StatusCompleted, s.is(0, state.StepDone))} },
		`"the pivot"`: func(s *scene) edits {
			return edits{s.is(0, state.StepDone), s.is(1, state.StepDone), becomes(state.StatusCompensating)}
		},
		`"undone is undone": FAILED, and step a`: func(s *scene) edits {
			return edits{s.is(0, state.StepDone), becomes(state.StatusCompensating), becomes(state.StatusFailed)}
		},
		`"undone is undone": not undone: ["c"]`: func(s *scene) edits {
			return edits{becomes(state.StatusCompensating, s.is(2, state.StepPending, unknown)), becomes(state.StatusFailed)}
		},
		`"undone in reverse order"`:              func(s *scene) edits { return edits{becomes(state.StatusCompensating), s.is(0, state.StepCompensated)} },
		`"one direction": step a was undone`:     func(s *scene) edits { return edits{s.is(0, state.StepDone), s.is(0, state.StepCompensated)} },
		`"one direction": step a became STARTED`: func(s *scene) edits { return edits{becomes(state.StatusCompensating), s.is(0, state.StepStarted)} },
		`"resting"`: func(*scene) edits {
			return edits{becomes(state.StatusInterrupted, func(ch *state.Change) { ch.Owner = "w" })}
		},
		`"a take-over marks"`: func(*scene) edits {
			return edits{func(ch *state.Change) { ch.Owner, ch.UpdatedAt = "other", at.Add(time.Hour) }}
		},
		`"a live lease"`: func(s *scene) edits {
			return edits{s.is(0, state.StepPending, unknown), func(ch *state.Change) { ch.Owner = "other" }}
		},
		`"people are named"`: func(*scene) edits { return edits{becomes(state.StatusBlocked), becomes(state.StatusInterrupted)} },
		`"messages": message t#op#1/a/0 became due`: func(*scene) edits {
			return edits{func(ch *state.Change) {
				ch.Messages = []outbox.Message{{ID: runKey + "/a/0", Topic: "x", Body: []byte("1")}}
			}}
		},
	} {
		t.Run(law, func(t *testing.T) {
			s := newScene(t)
			all := c(s)
			for _, edit := range all[:len(all)-1] {
				s.write(edit)
			}
			require.Empty(t, s.book.Broken(), "what leads there is right")
			s.write(all[len(all)-1])
			assert.Contains(t, strings.Join(s.book.Broken(), "\n"), "law "+law)
		})
	}
}

func TestACancelThatIsWrittenOverIsSeen(t *testing.T) {
	s := newScene(t)
	require.NoError(t, s.store.RequestCancel(t.Context(), runKey, state.CancelRequest{Reason: "why not"}))
	s.write(s.is(0, state.StepDone))
	assert.Contains(t, strings.Join(s.book.Broken(), "\n"), `law "a cancel is obeyed"`)
}

func TestStartsAreHeldAgainstTheRecord(t *testing.T) {
	for why, start := range map[string]func(s *scene){
		"the do of step b started while the run is IN_PROGRESS":   func(s *scene) { s.book.MayStart(s.book.Record(), "b", drive.Do) },
		"the undo of step a started while the run is IN_PROGRESS": func(s *scene) { s.book.MayStart(s.book.Record(), "a", drive.Undo) },
		"the do of step a started while there is no record":       func(s *scene) { s.book.MayStart(nil, "a", drive.Do) },
		"b behind it is still to be undone": func(s *scene) {
			s.write(s.is(0, state.StepDone))
			s.write(becomes(state.StatusCompensating, s.is(1, state.StepPending)))
			rec := s.book.Record()
			rec.Steps[1].Unknown = true
			s.book.MayStart(rec, "a", drive.Undo)
		},
	} {
		s := newScene(t)
		start(s)
		assert.Contains(t, strings.Join(s.book.Broken(), "\n"), why)
	}
}

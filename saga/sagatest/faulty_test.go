package sagatest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// Without a script it is the store that it wraps, in every respect.
func TestAFaultyStoreWithoutFaultsIsACorrectStore(t *testing.T) {
	statetest.Run(t, func(*testing.T) state.Store { return sagatest.NewFaultyStore(memory.New()) })
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newRecord() *state.Record {
	return &state.Record{
		Key: "t#op#1", Operation: "op", Plan: []string{"a"}, Status: state.StatusInProgress, CurrentStep: "a",
		Steps: []state.StepRecord{{Name: "a", Status: state.StepPending}}, Input: json.RawMessage(`1`),
		Owner: "w", WriteID: "w1", Runs: 1, Revision: 1, CreatedAt: began, UpdatedAt: began, LeaseUntil: began.Add(time.Minute),
	}
}

// next is the heartbeat that follows r.
func next(r *state.Record, id string) *state.Change {
	return &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: id, Owner: r.Owner, Runs: 1, Status: state.StatusInProgress,
		CurrentStep: "a", UpdatedAt: began, LeaseUntil: began.Add(time.Hour),
	}
}

// done is the change that records the step of r.
func done(r *state.Record, id string) *state.Change {
	ch := next(r, id)
	ch.Steps = []state.StepChange{{Index: 0, StepRecord: state.StepRecord{Name: "a", Status: state.StepDone, Output: json.RawMessage(`2`)}}}
	return ch
}

func created(t *testing.T) (inner *memory.Store, s *sagatest.FaultyStore, rec *state.Record) {
	t.Helper()
	inner, rec = memory.New(), newRecord()
	s = sagatest.NewFaultyStore(inner)
	existing, err := s.Create(t.Context(), rec)
	require.NoError(t, err)
	require.Nil(t, existing)
	return inner, s, rec
}

func writeID(t *testing.T, s state.Store) string {
	t.Helper()
	rec, err := s.Get(t.Context(), newRecord().Key)
	require.NoError(t, err)
	return rec.WriteID
}

func TestFaultsMeetTheCallsTheyAreFor(t *testing.T) {
	inner, s, rec := created(t)
	down := errors.New("down")
	s.On(sagatest.Records("a", state.StepDone), sagatest.LoseAnswer()).On(sagatest.Heartbeats, sagatest.Fail(down))
	require.ErrorIs(t, s.Commit(t.Context(), next(rec, "w2")), down)
	require.Equal(t, "w1", writeID(t, inner), "not made")
	require.ErrorIs(t, s.Commit(t.Context(), done(rec, "w3")), sagatest.ErrNoAnswer)
	require.Equal(t, "w3", writeID(t, inner), "made")
	var refused *state.ConflictError
	require.ErrorAs(t, s.Commit(t.Context(), done(rec, "w4")), &refused, "both rules are used up")
	require.Equal(t, "w3", refused.Current.WriteID)

	assert.Len(t, s.Calls(sagatest.Method("Commit")), 3)
	assert.Len(t, s.Calls(sagatest.Writes), 4)
	beats := s.Calls(sagatest.Heartbeats)
	require.Len(t, beats, 1)
	assert.Equal(t, sagatest.StoreCall{Method: "Commit", Nth: 1, Key: rec.Key, Change: beats[0].Change}, beats[0])
}

func TestALateCallLandsWhenTheTestSaysSo(t *testing.T) {
	inner, s, rec := created(t)
	var late sagatest.Late
	require.False(t, late.Sent())
	require.Error(t, late.Land(t.Context()))
	s.On(sagatest.Nth("Commit", 1), late.Fault)
	ch := done(rec, "w2")
	require.ErrorIs(t, s.Commit(t.Context(), ch), sagatest.ErrNoAnswer)
	ch.WriteID = "changed by the caller meanwhile"
	require.True(t, late.Sent())
	require.Equal(t, "w1", writeID(t, inner))
	s.Die()
	require.NoError(t, late.Land(t.Context()), "what is in the network outlives the process")
	require.Equal(t, "w2", writeID(t, inner))
	require.False(t, late.Sent())
}

func TestALateCreateDoesNotSeeWhatItsCallerDoesLater(t *testing.T) {
	inner := memory.New()
	s := sagatest.NewFaultyStore(inner)
	var late sagatest.Late
	s.On(sagatest.Method("Create"), late.Fault)
	rec := newRecord()
	existing, err := s.Create(t.Context(), rec)
	require.ErrorIs(t, err, sagatest.ErrNoAnswer)
	require.Nil(t, existing)
	rec.Steps[0].Status = state.StepDone
	require.NoError(t, late.Land(t.Context()))
	stored, err := inner.Get(t.Context(), rec.Key)
	require.NoError(t, err)
	require.Equal(t, state.StepPending, stored.Steps[0].Status)
}

func TestTheDeadGetNoAnswer(t *testing.T) {
	inner, s, rec := created(t)
	s.On(sagatest.Becomes(state.StatusInProgress), sagatest.After(s.Die))
	require.ErrorIs(t, s.Commit(t.Context(), next(rec, "w2")), sagatest.ErrDead)
	require.Equal(t, "w2", writeID(t, inner), "made, and never answered")
	_, err := s.Get(t.Context(), rec.Key)
	require.ErrorIs(t, err, sagatest.ErrDead)
	require.Empty(t, s.Calls(sagatest.Method("Get")))
}

func TestHangingEndsWithTheContext(t *testing.T) {
	_, s, rec := created(t)
	s.Always(sagatest.Method("Get"), sagatest.Hang())
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, err := s.Get(ctx, rec.Key)
	require.ErrorIs(t, err, gone)
	s.Clear()
	_, err = s.Get(t.Context(), rec.Key)
	require.NoError(t, err)
}

func TestAFaultCanNotClaimSuccess(t *testing.T) {
	inner, s, rec := created(t)
	s.On(sagatest.Writes, func(context.Context, sagatest.StoreCall, func(context.Context) error) error { return nil })
	require.ErrorIs(t, s.Commit(t.Context(), next(rec, "w2")), sagatest.ErrNoAnswer)
	require.Equal(t, "w1", writeID(t, inner))
	calls := 0
	s.On(sagatest.TakesUp, sagatest.Before(func() { calls++ }))
	ch := next(rec, "w3")
	require.NoError(t, s.Commit(t.Context(), ch))
	require.Zero(t, calls, "a heartbeat takes nothing up")
	rec.Revision++
	ch = next(rec, "w4")
	ch.Owner = "another"
	require.NoError(t, s.Commit(t.Context(), ch))
	require.Equal(t, 1, calls)
}

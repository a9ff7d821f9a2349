package state_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestStepsOfARecord(t *testing.T) {
	t.Parallel()
	rec := &state.Record{Status: state.StatusInProgress, Steps: []state.StepRecord{
		{Name: "a", Status: state.StepDone}, {Name: "b", Status: state.StepSkipped}, {Name: "c", Status: state.StepPending}, {Name: "d", Status: state.StepDone},
	}}
	c, ok := rec.Step("c")
	assert.True(t, ok)
	assert.Equal(t, "c", c.Name)
	_, ok = rec.Step("x")
	assert.False(t, ok)
	assert.Equal(t, 3, rec.StepIndex("d"))
	assert.Equal(t, -1, rec.StepIndex(""))
	assert.True(t, rec.Done("a"))
	assert.False(t, rec.Done("b"))
	assert.False(t, rec.Done("x"))
	assert.Equal(t, 2, rec.Next())
	assert.True(t, rec.PartialSuccess())
	rec.Steps[2].Status = state.StepDone
	assert.Equal(t, 4, rec.Next())
	rec.Status = state.StatusCompleted
	assert.False(t, rec.PartialSuccess(), "it has ended")
	assert.False(t, (&state.Record{Status: state.StatusBlocked}).PartialSuccess(), "nothing is done")
	assert.Zero(t, (&state.Record{}).Next())
}

func TestBlockedBy(t *testing.T) {
	t.Parallel()
	own, undo := &state.Failure{Step: "b", Code: "declined", NotUndone: []string{"c"}}, &state.Failure{Step: "a", Code: "too_late", Message: "over"}
	rec := &state.Record{Status: state.StatusBlocked, CurrentStep: "a", Failure: own, Steps: []state.StepRecord{{Name: "a", UndoError: undo}, {Name: "b"}}}
	assert.Same(t, own, rec.BlockedBy(), "it goes forward")
	rec.EndsAs = state.StatusFailed
	assert.Equal(t, &state.Failure{Step: "a", Code: "too_late", Message: "over", NotUndone: []string{"c"}}, rec.BlockedBy())
	assert.Nil(t, undo.NotUndone, "the record is as it was")
	rec.CurrentStep = "b"
	assert.Same(t, own, rec.BlockedBy(), "its compensation did not fail")
	rec.CurrentStep = "gone"
	assert.Same(t, own, rec.BlockedBy())
	rec.CurrentStep, rec.Failure = "a", nil
	assert.Equal(t, undo, rec.BlockedBy())
	rec.Status = state.StatusCompensating
	assert.Nil(t, rec.BlockedBy())
}

func TestMayHaveHappened(t *testing.T) {
	t.Parallel()
	for _, unknown := range []bool{false, true} {
		want := map[state.StepStatus]bool{
			state.StepPending: unknown, state.StepStarted: true, state.StepDone: true, state.StepCompensating: true,
			state.StepSkipped: false, state.StepCompensated: false,
		}
		require.Len(t, want, len(state.StepStatuses()))
		for status, may := range want {
			assert.Equal(t, may, state.StepRecord{Status: status, Unknown: unknown}.MayHaveHappened(), "%s, unknown %t", status, unknown)
		}
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	rec := &state.Record{Retention: time.Hour}
	assert.Equal(t, noon.Add(time.Hour), rec.Expiry(noon))
	assert.Equal(t, noon.Add(time.Hour+time.Second), rec.Expiry(noon.Add(1)), "up to the next second")
	assert.Equal(t, noon.Add(time.Hour+time.Second), rec.Expiry(noon.Add(time.Second)))
	assert.False(t, rec.Expired(noon), "without an expiry")
	rec.ExpiresAt = noon
	assert.False(t, rec.Expired(noon.Add(-1)))
	assert.True(t, rec.Expired(noon))
	assert.True(t, rec.Expired(noon.Add(1)))
	rec.Outbox.Messages = make([]state.OutboxMessage, 1)
	assert.True(t, rec.Expiry(noon).IsZero(), "unsent messages")
	assert.True(t, (&state.Record{}).Expiry(noon).IsZero(), "kept for ever")
	assert.True(t, (&state.Record{Retention: -1}).Expiry(noon).IsZero())
}

func TestLeaseLive(t *testing.T) {
	t.Parallel()
	rec := &state.Record{LeaseUntil: noon}
	assert.True(t, rec.LeaseLive(noon.Add(-1)))
	assert.False(t, rec.LeaseLive(noon))
	assert.False(t, (&state.Record{}).LeaseLive(noon), "laid down")
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, s := range state.Statuses() {
		rec := &state.Record{Status: s}
		assert.Equal(t, !s.Ended(), rec.Open(), s)
		rec.Outbox.Messages = make([]state.OutboxMessage, 1)
		assert.True(t, rec.Open(), s)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for _, s := range state.Statuses() {
		rec := &state.Record{Status: s, Retention: time.Hour}
		assert.Equal(t, s.Ended(), rec.Settle(noon), s)
		assert.Equal(t, s.Ended(), !rec.ExpiresAt.IsZero(), s)
		assert.False(t, rec.Settle(noon.Add(time.Hour)), "once")
	}
	rec := &state.Record{Status: state.StatusFailed, Retention: time.Hour, Outbox: state.Outbox{Messages: make([]state.OutboxMessage, 1)}}
	assert.False(t, rec.Settle(noon), "unsent messages")
	assert.False(t, (&state.Record{Status: state.StatusFailed}).Settle(noon), "kept for ever")
}

func TestCheckCancel(t *testing.T) {
	t.Parallel()
	requested := &state.CancelRequest{}
	done := []state.StepRecord{{Name: "p", Status: state.StepDone}}
	for _, c := range []struct {
		rec     state.Record
		store   bool
		allowed bool
	}{
		{state.Record{Status: state.StatusInProgress}, true, true},
		{state.Record{Status: state.StatusInterrupted}, true, true},
		{state.Record{Status: state.StatusInProgress, Cancel: requested}, false, true},
		{state.Record{Status: state.StatusCompensating}, false, true},
		{state.Record{Status: state.StatusCompensating, Pivot: "p", Steps: done}, false, true},
		{state.Record{Status: state.StatusInProgress, Pivot: "p", Steps: done}, false, false},
		{state.Record{Status: state.StatusInterrupted, Pivot: "p", Steps: done, Cancel: requested}, false, false},
		{state.Record{Status: state.StatusInProgress, Pivot: "p", Steps: []state.StepRecord{{Name: "p", Status: state.StepSkipped}}}, true, true},
		{state.Record{Status: state.StatusInProgress, Pivot: "p", Steps: []state.StepRecord{{Name: "p", Unknown: true, Status: state.StepStarted}}}, true, true},
		{state.Record{Status: state.StatusCompleted}, false, false},
		{state.Record{Status: state.StatusFailed}, false, false},
		{state.Record{Status: state.StatusReversed}, false, false},
		{state.Record{Status: state.StatusBlocked}, false, false},
	} {
		store, err := c.rec.CheckCancel()
		assert.Equal(t, c.store, store, "%+v", c.rec)
		if c.allowed {
			assert.NoError(t, err, "%+v", c.rec)
		} else {
			assert.ErrorIs(t, err, state.ErrNotAllowed, "%+v", c.rec)
		}
	}
}

func TestQueryMatches(t *testing.T) {
	t.Parallel()
	rec := &state.Record{Status: state.StatusBlocked, Operation: "op", LeaseUntil: noon}
	for _, c := range []struct {
		q    state.Query
		want bool
	}{
		{state.Query{}, true},
		{state.Query{Statuses: []state.Status{state.StatusBlocked}}, true},
		{state.Query{Statuses: []state.Status{state.StatusFailed, state.StatusBlocked}}, true},
		{state.Query{Statuses: []state.Status{state.StatusFailed}}, false},
		{state.Query{Operation: "op"}, true},
		{state.Query{Operation: "o"}, false},
		{state.Query{LapsedBefore: noon}, false},
		{state.Query{LapsedBefore: noon.Add(1)}, true},
		{state.Query{LapsedBefore: noon.Add(1), Operation: "x"}, false},
	} {
		assert.Equal(t, c.want, c.q.Matches(rec), "%+v", c.q)
	}
	assert.True(t, state.Query{LapsedBefore: noon}.Matches(&state.Record{}), "laid down")
}

func TestActor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	assert.Equal(t, "unknown", state.Actor(ctx))
	assert.Equal(t, "unknown", state.Actor(state.ActorContext(ctx, "")))
	assert.Equal(t, "ann", state.Actor(state.ActorContext(state.ActorContext(ctx, "bob"), "ann")))
}

func TestGrainOfTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 14, 0, 0, 999_999_999, time.FixedZone("x", 7200))
	assert.Equal(t, noon.Add(999*time.Millisecond), state.Milli(at))
	assert.Equal(t, noon.Add(time.Second), state.CeilSecond(at))
	assert.Equal(t, noon, state.CeilSecond(noon))
	assert.True(t, state.Milli(time.Time{}).IsZero())
	assert.True(t, state.CeilSecond(time.Time{}).IsZero())
	assert.Equal(t, time.UnixMilli(at.UnixMilli()).UTC(), state.Milli(at), "what a store of milliseconds gives back")
	now := time.Now()
	assert.Equal(t, time.UnixMilli(now.UnixMilli()).UTC(), state.Milli(now), "without the monotonic clock")
}

func msg(n string) state.OutboxMessage { return state.OutboxMessage{Message: outbox.Message{ID: n}} }

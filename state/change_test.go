package state_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// filled is a record with a value in every field, going backwards, without a claim.
func filled(t testing.TB) *state.Record {
	rec := new(state.Record)
	statetest.Fill(t, rec)
	rec.Key = "t#op#1"
	rec.ExpiresAt = time.Time{}
	rec.Outbox.Token, rec.Outbox.ClaimedUntil = "", time.Time{}
	return rec
}

// change is one of rec with a value in every field but the expiry; it replaces the last step and appends one.
func change(t testing.TB, rec *state.Record) *state.Change {
	ch := new(state.Change)
	statetest.Fill(t, ch)
	ch.Key, ch.IfOwner, ch.IfRevision, ch.IfNoCancel = rec.Key, rec.Owner, rec.Revision, false
	ch.Steps[0].Index, ch.Steps[1].Index = len(rec.Steps)-1, len(rec.Steps)
	ch.ExpiresAt = time.Time{}
	return ch
}

func TestApply(t *testing.T) {
	t.Parallel()
	rec := filled(t)
	before := rec.Clone()
	ch := change(t, rec)
	require.NoError(t, ch.Apply(rec))
	want := &state.Record{
		Key: before.Key, Operation: before.Operation, Version: before.Version, Retention: before.Retention, PayloadHash: before.PayloadHash,
		Input: before.Input, CreatedAt: before.CreatedAt,
		Revision: before.Revision + 1, WriteID: ch.WriteID, Owner: ch.Owner, Runs: ch.Runs, Status: ch.Status, EndsAs: ch.EndsAs,
		CurrentStep: ch.CurrentStep, LeaseUntil: ch.LeaseUntil, NotBefore: ch.NotBefore, UpdatedAt: ch.UpdatedAt, Failure: ch.Failure,
		Plan: ch.Plan, Pivot: ch.Pivot, Steps: []state.StepRecord{before.Steps[0], ch.Steps[0].StepRecord, ch.Steps[1].StepRecord},
		Response: ch.Response,
		Outbox: state.Outbox{Token: ch.Claim.Token, ClaimedUntil: ch.Claim.Until, Messages: append(before.Outbox.Messages,
			state.OutboxMessage{Message: ch.Messages[0]}, state.OutboxMessage{Message: ch.Messages[1]})},
		Audit: append(before.Audit, ch.Audit...),
	}
	assert.Empty(t, statetest.Differences(want, rec))
	assertNothingShared(t, ch, rec)
}

func TestApplyClearsTheHeaderAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	rec := filled(t)
	want := rec.Clone()
	require.NoError(t, (&state.Change{Key: rec.Key, IfOwner: rec.Owner, IfRevision: rec.Revision, Status: state.StatusBlocked}).Apply(rec))
	want.Revision++
	want.Owner, want.WriteID, want.Runs, want.Status, want.EndsAs, want.CurrentStep = "", "", 0, state.StatusBlocked, "", ""
	want.LeaseUntil, want.NotBefore, want.UpdatedAt, want.Failure = time.Time{}, time.Time{}, time.Time{}, nil
	assert.Empty(t, statetest.Differences(want, rec))
}

// TestARefusedChangeLeavesTheRecord: whatever is wrong with it, and however much of it would have been right.
func TestARefusedChangeLeavesTheRecord(t *testing.T) {
	t.Parallel()
	live := func(rec *state.Record, ch *state.Change) {
		rec.Outbox.Token, rec.Outbox.ClaimedUntil = "another", ch.UpdatedAt.Add(time.Millisecond)
	}
	for name, c := range map[string]struct {
		spoil    func(rec *state.Record, ch *state.Change)
		conflict bool
	}{
		"key":           {func(_ *state.Record, ch *state.Change) { ch.Key = "t#op#2" }, true},
		"owner":         {func(_ *state.Record, ch *state.Change) { ch.IfOwner = "" }, true},
		"revision":      {func(_ *state.Record, ch *state.Change) { ch.IfRevision-- }, true},
		"next revision": {func(_ *state.Record, ch *state.Change) { ch.IfRevision++ }, true},
		"cancel":        {func(_ *state.Record, ch *state.Change) { ch.IfNoCancel = true }, true},
		"claim":         {live, true},
		"transition":    {func(_ *state.Record, ch *state.Change) { ch.Status = state.StatusCompleted }, false},
		"no status":     {func(_ *state.Record, ch *state.Change) { ch.Status = "" }, false},
		"expiry":        {func(_ *state.Record, ch *state.Change) { ch.ExpiresAt = time.Now() }, false},
		"expiry with its own messages": {func(rec *state.Record, ch *state.Change) {
			ch.Status, ch.ExpiresAt, rec.Outbox = state.StatusFailed, time.Now(), state.Outbox{}
		}, false},
		"expiry with older messages": {func(_ *state.Record, ch *state.Change) {
			ch.Status, ch.ExpiresAt, ch.Messages, ch.Claim = state.StatusFailed, time.Now(), nil, nil
		}, false},
		"step before the first": {func(_ *state.Record, ch *state.Change) { ch.Steps[0].Index = -1 }, false},
		"a gap":                 {func(rec *state.Record, ch *state.Change) { ch.Steps[1].Index = len(rec.Steps) + 1 }, false},
		"appended too late": {func(rec *state.Record, ch *state.Change) {
			ch.Steps[0].Index, ch.Steps[1].Index = len(rec.Steps)+1, len(rec.Steps)
		}, false},
		"conflict before defect": {func(_ *state.Record, ch *state.Change) { ch.Status, ch.IfRevision = "", 0 }, true},
	} {
		rec := filled(t)
		ch := change(t, rec)
		c.spoil(rec, ch)
		before := rec.Clone()
		err := ch.Apply(rec)
		assert.Equal(t, before, rec, name)
		if !c.conflict {
			require.ErrorIs(t, err, state.ErrTransition, name)
			require.NotErrorIs(t, err, state.ErrConflict, name)
			continue
		}
		require.ErrorIs(t, err, state.ErrConflict, name)
		require.NotErrorIs(t, err, state.ErrTransition, name)
		var refused *state.ConflictError
		require.ErrorAs(t, err, &refused, name)
		assert.Equal(t, before, refused.Current, name)
		assertNothingShared(t, rec, refused.Current)
	}
}

func TestApplyAllowsAClaimWhereNoneIsLive(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(o *state.Outbox, ch *state.Change){
		"none":     func(*state.Outbox, *state.Change) {},
		"lapsed":   func(o *state.Outbox, ch *state.Change) { o.Token, o.ClaimedUntil = "a", ch.UpdatedAt.Add(-1) },
		"lapsing":  func(o *state.Outbox, ch *state.Change) { o.Token, o.ClaimedUntil = "a", ch.UpdatedAt },
		"released": func(o *state.Outbox, ch *state.Change) { o.Token, o.ClaimedUntil = "", ch.UpdatedAt.Add(time.Hour) },
		"live, but not claimed": func(o *state.Outbox, ch *state.Change) {
			o.Token, o.ClaimedUntil, ch.Claim = "a", ch.UpdatedAt.Add(time.Hour), nil
		},
	} {
		rec := filled(t)
		ch := change(t, rec)
		set(&rec.Outbox, ch)
		token := rec.Outbox.Token
		require.NoError(t, ch.Apply(rec), name)
		if ch.Claim != nil {
			token = ch.Claim.Token
		}
		assert.Equal(t, token, rec.Outbox.Token, name)
	}
}

func TestStepsOfOneChangeAreMadeInOrder(t *testing.T) {
	t.Parallel()
	rec := &state.Record{Key: "k", Status: state.StatusInProgress}
	step := func(i int, name string) state.StepChange {
		return state.StepChange{Index: i, StepRecord: state.StepRecord{Name: name}}
	}
	require.NoError(t, (&state.Change{Key: "k", Status: state.StatusInProgress, Steps: []state.StepChange{
		step(0, "a"), step(1, "b"), step(0, "c"), step(2, "d"), step(2, "e"),
	}}).Apply(rec))
	assert.Equal(t, []state.StepRecord{{Name: "c"}, {Name: "b"}, {Name: "e"}}, rec.Steps)
}

func TestApplyRoundsTimes(t *testing.T) {
	t.Parallel()
	rec := filled(t)
	rec.Outbox.Messages = nil
	ch := change(t, rec)
	ch.Status, ch.Messages = state.StatusFailed, nil
	ch.ExpiresAt = time.Now()
	disturb(reflect.ValueOf(ch))
	require.NoError(t, ch.Apply(rec))
	assertRounded(t, rec)
}

func TestConflictErrorTellsWhatIsStoredButNoPayload(t *testing.T) {
	t.Parallel()
	rec := filled(t)
	rec.Input, rec.Failure.Message = []byte(`"s3cret"`), "s3cret"
	err := error(&state.ConflictError{Key: rec.Key, Current: rec})
	assert.ErrorIs(t, err, state.ErrConflict)
	assert.NotErrorIs(t, err, state.ErrNotFound)
	assert.ErrorContains(t, err, rec.Key)
	assert.ErrorContains(t, err, string(rec.Status))
	assert.NotContains(t, err.Error(), "s3cret")
	assert.ErrorContains(t, &state.ConflictError{Key: rec.Key}, "the record is gone")
}

// TestGrowthIsNoLessThanWhatTheChangeAdds, so that a store that adds it up is never over its limit unawares.
func TestGrowthIsNoLessThanWhatTheChangeAdds(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string { return strings.Repeat("x", r.IntN(300)) }
	for range 500 {
		rec := filled(t)
		ch := change(t, rec)
		ch.Steps[0].Output, ch.Steps[1].Output, ch.Response = []byte(text()), []byte(text()), []byte(text())
		ch.Steps[0].Error.Message, ch.Failure.Message, ch.Failure.NotUndone = text(), text(), []string{text(), text()}
		ch.Owner, ch.WriteID, ch.CurrentStep, ch.Pivot, ch.Plan = text(), text(), text(), text(), []string{text(), text()}
		ch.Messages[0].Body, ch.Messages[0].Attributes = []byte(text()), map[string]string{text(): text()}
		ch.Audit[0].Note = text()
		if r.IntN(2) == 0 {
			ch.Plan, ch.Response, ch.Messages, ch.Audit, ch.Claim = nil, nil, nil, nil, nil
		}
		before := rec.Size()
		require.NoError(t, ch.Apply(rec))
		require.LessOrEqual(t, rec.Size(), before+ch.Growth())
	}
}

func TestSizeCountsEveryPayload(t *testing.T) {
	t.Parallel()
	empty := (&state.Record{}).Size()
	const n = 10_000
	big := []byte(strings.Repeat("x", n))
	for name, rec := range map[string]*state.Record{
		"input":     {Input: big},
		"response":  {Response: big},
		"output":    {Steps: []state.StepRecord{{Output: big}}},
		"error":     {Steps: []state.StepRecord{{Error: &state.Failure{Message: string(big)}}}},
		"undo":      {Steps: []state.StepRecord{{UndoError: &state.Failure{Code: string(big)}}}},
		"failure":   {Failure: &state.Failure{NotUndone: []string{string(big)}}},
		"body":      {Outbox: state.Outbox{Messages: []state.OutboxMessage{{Message: outbox.Message{Body: big}}}}},
		"attribute": {Outbox: state.Outbox{Messages: []state.OutboxMessage{{Message: outbox.Message{Attributes: map[string]string{"a": string(big)}}}}}},
		"parked":    {Outbox: state.Outbox{Messages: []state.OutboxMessage{{Parked: string(big)}}}},
		"note":      {Audit: []state.AuditEntry{{Note: string(big)}}},
		"reason":    {Cancel: &state.CancelRequest{Reason: string(big)}},
		"plan":      {Plan: []string{string(big)}},
		"key":       {Key: string(big)},
	} {
		assert.GreaterOrEqual(t, rec.Size(), empty+n, name)
		assert.Less(t, rec.Size(), empty+n+1000, name)
	}
}

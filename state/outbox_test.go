package state_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// claimed is an outbox of the messages a to d, claimed with a token, and the batch that its relay has.
func claimed() (*state.Outbox, outbox.Batch) {
	o := &state.Outbox{Token: "token", ClaimedUntil: noon, Messages: []state.OutboxMessage{msg("a"), msg("b"), msg("c"), msg("d")}}
	return o, outbox.Batch{RunKey: "k", Token: "token", Messages: o.Sendable()}
}

func left(o *state.Outbox) string {
	var b strings.Builder
	for _, m := range o.Messages {
		b.WriteString(m.ID)
		if m.Parked != "" {
			b.WriteByte('!')
		}
	}
	if o.Token != "" {
		b.WriteString(" claimed")
	}
	return b.String()
}

func TestDue(t *testing.T) {
	t.Parallel()
	o, _ := claimed()
	assert.Empty(t, o.Due(noon.Add(-1)), "a live claim")
	assert.Len(t, o.Due(noon), 4, "a lapsed one")
	assert.Len(t, o.Sendable(), 4, "claimed or not")
	o.Messages[2].Parked = "reason"
	assert.Len(t, o.Due(noon), 2, "before the parked one")
	o.Messages[0].Parked = "reason"
	assert.Empty(t, o.Due(noon))
	o.Token, o.ClaimedUntil = "", noon.Add(time.Hour)
	o.Messages[0].Parked = ""
	assert.Len(t, o.Due(noon), 2, "released, whatever the time says")
	assert.Empty(t, state.Outbox{}.Due(noon))
}

func TestSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{"a", "b", "c", "d"}, ""},
		{[]string{"b"}, "acd claimed"},
		{[]string{"d", "a", "d", "x"}, "bc claimed"},
		{[]string{"x"}, "abcd claimed"},
		{nil, "abcd"},
		{[]string{}, "abcd"},
	} {
		o, b := claimed()
		require.NoError(t, o.Sent(b, c.ids))
		assert.Equal(t, c.want, left(o), "%v", c.ids)
		assert.Equal(t, o.Token == "", o.ClaimedUntil.IsZero())
	}
	o, b := claimed()
	b.Messages = b.Messages[:2]
	require.NoError(t, o.Sent(b, []string{"a", "b"}))
	assert.Equal(t, "cd", left(o), "released once all of the batch's are dealt with")
	for _, token := range []string{"another", ""} {
		o, b = claimed()
		b.Token = token
		require.ErrorIs(t, o.Sent(b, []string{"a"}), outbox.ErrClaimLost)
		require.ErrorIs(t, o.Park(b, "a", "r"), outbox.ErrClaimLost)
		o.Token = ""
		require.ErrorIs(t, o.Sent(b, nil), outbox.ErrClaimLost, "no claim at all")
		require.ErrorIs(t, o.Park(b, "a", "r"), outbox.ErrClaimLost)
		assert.Equal(t, "abcd", left(o))
	}
}

func TestParkAndUnpark(t *testing.T) {
	t.Parallel()
	o, b := claimed()
	require.NoError(t, o.Park(b, "b", "no such topic"))
	assert.Equal(t, "ab!cd", left(o), "the claim is released")
	assert.Equal(t, "no such topic", o.Messages[1].Parked)
	assert.Len(t, o.Sendable(), 1, "its successors are held back")
	require.NoError(t, o.Unpark("b", true))
	assert.Equal(t, "abcd", left(o))
	require.ErrorIs(t, o.Unpark("b", true), outbox.ErrNotParked)
	require.ErrorIs(t, o.Unpark("x", false), outbox.ErrNotParked)

	o, b = claimed()
	require.NoError(t, o.Park(b, "b", ""))
	assert.NotEmpty(t, o.Messages[1].Parked, "without a reason it is parked all the same")
	require.NoError(t, o.Unpark("b", false))
	assert.Equal(t, "acd", left(o), "dropped")

	o, b = claimed()
	require.NoError(t, o.Park(b, "x", "r"))
	assert.Equal(t, "abcd", left(o), "gone: nothing to park, and the claim is released")
	o, b = claimed()
	require.NoError(t, o.Park(b, "a", strings.Repeat("é", 1000)))
	assert.Len(t, o.Messages[0].Parked, state.MaxMessage)
}

func TestMessageRun(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"t#op#1/step/0": "t#op#1", "t#op#a%2Fb/s/compensate/12": "t#op#a%2Fb", "t#op#1/": "t#op#1"} {
		got, ok := state.MessageRun(id)
		assert.True(t, ok, id)
		assert.Equal(t, want, got)
	}
	for _, id := range []string{"", "t#op#1", "/step/0"} {
		_, ok := state.MessageRun(id)
		assert.False(t, ok, id)
	}
}

func TestUnparkAudit(t *testing.T) {
	t.Parallel()
	want := state.AuditEntry{At: noon, Actor: "ann", Verb: "unpark_resend", Step: "id", Note: "note"}
	assert.Equal(t, want, state.UnparkAudit("ann", "id", true, "note", noon.Add(1)))
	want.Verb = "unpark_drop"
	assert.Equal(t, want, state.UnparkAudit("ann", "id", false, "note", noon))

	got := state.UnparkAudit(strings.Repeat("a", 2*state.MaxMessage), "id", false, "\xff"+strings.Repeat("é", state.MaxMessage), noon)
	assert.Len(t, got.Actor, state.MaxMessage)
	assert.LessOrEqual(t, len(got.Note), state.MaxMessage, "a record has no room for a person's whole story")
	assert.True(t, utf8.ValidString(got.Note), "nor is every store able to keep what is no text")
}

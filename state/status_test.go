package state_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// diagram is the state machine as it was designed. That docs/state-machine.md draws the same is another test.
const diagram = `
IN_PROGRESS --> COMPLETED
IN_PROGRESS --> INTERRUPTED
INTERRUPTED --> IN_PROGRESS
IN_PROGRESS --> COMPENSATING
INTERRUPTED --> COMPENSATING
COMPENSATING --> FAILED
COMPENSATING --> BLOCKED
IN_PROGRESS --> BLOCKED
BLOCKED --> COMPENSATING
BLOCKED --> INTERRUPTED
COMPLETED --> COMPENSATING
COMPENSATING --> REVERSED
IN_PROGRESS --> IN_PROGRESS
COMPENSATING --> COMPENSATING
`

func TestEveryPairOfStatuses(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(diagram)) {
		legal[strings.TrimSpace(line)] = true
	}
	all := append(state.Statuses(), "", "NONSENSE", "completed")
	found := 0
	for _, from := range all {
		for _, to := range all {
			name := string(from) + " --> " + string(to)
			assert.Equal(t, legal[name], from.CanBecome(to), name)
			rec := &state.Record{Key: "k", Status: from, Revision: 1}
			err := (&state.Change{Key: "k", IfRevision: 1, Status: to}).Apply(rec)
			if legal[name] {
				found++
				require.NoError(t, err, name)
				assert.Equal(t, to, rec.Status)
			} else {
				require.ErrorIs(t, err, state.ErrTransition, name)
				assert.Equal(t, from, rec.Status)
				assert.EqualValues(t, 1, rec.Revision)
			}
		}
	}
	assert.Equal(t, len(legal), found)
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	ended := map[state.Status]bool{state.StatusCompleted: true, state.StatusFailed: true, state.StatusReversed: true}
	for _, s := range state.Statuses() {
		assert.True(t, s.Valid())
		assert.Equal(t, ended[s], s.Ended(), s)
	}
	assert.Len(t, state.Statuses(), 7)
	assert.False(t, state.Status("").Valid())
	assert.False(t, state.Status("").Ended())
	state.Statuses()[0] = "scribbled"
	assert.Equal(t, state.StatusInProgress, state.Statuses()[0])
}

func TestStepStatuses(t *testing.T) {
	t.Parallel()
	want := []state.StepStatus{"PENDING", "STARTED", "DONE", "SKIPPED", "COMPENSATING", "COMPENSATED"}
	assert.Equal(t, want, state.StepStatuses())
	for _, s := range want {
		assert.True(t, s.Valid())
		assert.Equal(t, s == "DONE" || s == "SKIPPED", s.Finished(), s)
	}
	assert.False(t, state.StepStatus("done").Valid())
}

package sqlite

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

var release = flag.Bool("release", false, "write the testdata file of this version of the layout, once, when it is released")

// TestRelease writes the file that TestFirstVersionsFile reads.
func TestRelease(t *testing.T) {
	path := filepath.Join("testdata", "v1.db")
	if !*release {
		require.FileExists(t, path)
		return
	}
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"))
	require.NoError(t, err)
	for _, rec := range versionOneRecords() {
		first := rec.Clone()
		first.Steps = nil
		for _, name := range rec.Plan {
			first.Steps = append(first.Steps, state.StepRecord{Name: name, Status: state.StepPending})
		}
		if rec.Revision != 2 {
			create(t, s, rec)
			continue
		}
		first.Revision = 1
		create(t, s, first)
		ch := follow(rec)
		ch.IfRevision, ch.WriteID, ch.UpdatedAt = 1, rec.WriteID, rec.UpdatedAt
		for i, step := range rec.Steps {
			ch.Steps = append(ch.Steps, state.StepChange{Index: i, StepRecord: step})
		}
		require.NoError(t, s.Commit(t.Context(), ch))
	}
	require.NoError(t, s.Close())
	b, err := os.ReadFile(s.path)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll("testdata", 0o750))
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// versionOneRecords are what testdata/v1.db holds: a run at work, and one with something in every part.
func versionOneRecords() []*state.Record {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	failure := &state.Failure{Step: "first", Code: "card_declined", Message: `it said "no"`, NotUndone: []string{"second"}, At: now}
	work := &state.Record{
		Key: "tenant-a#create_order#order-001", Operation: "create_order", Version: 1, Plan: []string{"first", "second"}, Retention: 720 * time.Hour,
		Status: state.StatusInProgress, CurrentStep: "second", PayloadHash: "1:abc", Input: []byte(`{"order_no":"order-001"}`), Owner: "a", WriteID: "b",
		Runs: 1, LeaseUntil: now.Add(30 * time.Second), Revision: 2, CreatedAt: now, UpdatedAt: now,
		Steps: []state.StepRecord{
			{Name: "first", Status: state.StepDone, Attempts: 1, Output: []byte(`{"id":9007199254740993}`), StartedAt: now, EndedAt: now.Add(time.Second)},
			{Name: "second", Status: state.StepPending},
		},
	}
	full := work.Clone()
	full.Key, full.Status, full.EndsAs, full.Owner, full.Pivot = "#create_order#order-002", state.StatusBlocked, state.StatusFailed, "", "second"
	full.Revision, full.LeaseUntil, full.NotBefore, full.Failure = 7, time.Time{}, now.Add(time.Minute), failure
	full.Input, full.Response = []byte(` [1, 2] `), []byte(strings.Repeat("[", 600)+strings.Repeat("]", 600))
	full.Cancel = &state.CancelRequest{Reason: "changed my mind", Actor: "me", At: now}
	full.Audit = []state.AuditEntry{{At: now, Actor: "me", Verb: "retry", Step: "first", Note: "again"}}
	full.Steps[0].Output = []byte(`"` + strings.Repeat("long ", 500) + `"`)
	full.Steps[1] = state.StepRecord{
		Name: "second", Status: state.StepCompensating, Attempts: 3, Unknown: true, Output: []byte(" 1 "), Error: failure, UndoAttempts: 2, UndoError: failure,
		EndedAt: now,
	}
	full.Outbox = state.Outbox{Token: "token", ClaimedUntil: now, Messages: []state.OutboxMessage{
		{Message: outbox.Message{
			ID: full.Key + "/first/0", Topic: "t", Key: "k", Type: "y", ContentType: "c", Attributes: map[string]string{"a": "1", "b": "2"},
			Body: []byte{0, 255}, Time: now,
		}, Parked: "refused"},
		{Message: outbox.Message{ID: full.Key + "/first/1", Topic: "t", Body: []byte(`{"a":1}`), Time: now}},
	}}
	return []*state.Record{work, full}
}

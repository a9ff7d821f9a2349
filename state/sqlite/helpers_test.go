package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(children[child]())
	}
	goleak.VerifyTestMain(m)
}

func oblivious() Option { return option(func(c *config) { c.oblivious = true }) }

func withPoints(p failpoints) Option { return option(func(c *config) { c.points = p }) }

func withMigrations(m ...migration) Option { return option(func(c *config) { c.migrations = m }) }

// open opens a store that is closed at the end of the test.
func open(t *testing.T, path string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newStore opens a store on a new file.
func newStore(t *testing.T, opts ...Option) *Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "runs.db"), opts...)
}

// tool opens the file as any SQL tool would, without this package.
func tool(t *testing.T, path string, flags ...zombiezen.OpenFlags) *zombiezen.Conn {
	t.Helper()
	c, err := zombiezen.OpenConn(path, flags...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// query is the rows of a query, each as its columns in text; NULL is "NULL".
func query(t *testing.T, c *zombiezen.Conn, q string, args ...string) (rows [][]string) {
	t.Helper()
	s, _, err := c.PrepareTransient(q)
	require.NoError(t, err, q)
	for i, a := range args {
		s.BindText(i+1, a)
	}
	for {
		more, err := s.Step()
		require.NoError(t, err, q)
		if !more {
			require.NoError(t, s.Finalize())
			return rows
		}
		row := make([]string, s.ColumnCount())
		for i := range row {
			row[i] = s.ColumnText(i)
			if s.ColumnIsNull(i) {
				row[i] = "NULL"
			}
		}
		rows = append(rows, row)
	}
}

func at() time.Time { return state.Milli(time.Now()) }

// sample is a run of three steps that has just been started.
func sample(id string) *state.Record {
	now := at()
	return &state.Record{
		Key: "tenant#operation#" + id, Operation: "operation", Version: 1, Plan: []string{"first", "second", "third"}, Retention: time.Hour,
		Status: state.StatusInProgress, CurrentStep: "first",
		Steps: []state.StepRecord{
			{Name: "first", Status: state.StepPending}, {Name: "second", Status: state.StepPending}, {Name: "third", Status: state.StepPending},
		},
		PayloadHash: "1:abc", Input: []byte(`{"id":"` + id + `"}`), Owner: "owner of " + id, WriteID: "create " + id, Runs: 1,
		LeaseUntil: now.Add(time.Minute), Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
}

func create(t *testing.T, s *Store, rec *state.Record) *state.Record {
	t.Helper()
	existing, err := s.Create(t.Context(), rec)
	require.NoError(t, err)
	require.Nil(t, existing)
	return rec.Clone()
}

// follow is a change of r that changes nothing but the write ID.
func follow(r *state.Record) *state.Change {
	return &state.Change{
		Key: r.Key, IfOwner: r.Owner, IfRevision: r.Revision, WriteID: fmt.Sprintf("write %d", r.Revision), Owner: r.Owner, Runs: r.Runs,
		Status: r.Status, EndsAs: r.EndsAs, CurrentStep: r.CurrentStep, LeaseUntil: r.LeaseUntil, NotBefore: r.NotBefore,
		ExpiresAt: r.ExpiresAt, UpdatedAt: at(), Failure: r.Failure,
	}
}

// stepDone is a change that records a step as done.
func stepDone(r *state.Record, i int, output string) *state.Change {
	ch := follow(r)
	ch.Steps = []state.StepChange{{Index: i, StepRecord: state.StepRecord{
		Name: r.Steps[i].Name, Status: state.StepDone, Attempts: 1, Output: []byte(output), StartedAt: r.CreatedAt, EndedAt: at(),
	}}}
	return ch
}

// end is a change that completes the run.
func end(r *state.Record, expires time.Time) *state.Change {
	ch := follow(r)
	ch.Status, ch.Owner, ch.LeaseUntil, ch.CurrentStep, ch.ExpiresAt = state.StatusCompleted, "", time.Time{}, "", expires
	return ch
}

func commit(t *testing.T, s *Store, r *state.Record, ch *state.Change) {
	t.Helper()
	require.NoError(t, s.Commit(t.Context(), ch))
	require.NoError(t, ch.Apply(r))
}

func message(r *state.Record, i int, body string) outbox.Message {
	return outbox.Message{ID: fmt.Sprintf("%s/first/%d", r.Key, i), Topic: "topic", Body: []byte(body), ContentType: "application/json", Time: at()}
}

func get(t *testing.T, s *Store, key string) *state.Record {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	return r
}

// same checks that got is what was put in.
func same(t *testing.T, want, got *state.Record) {
	t.Helper()
	require.NotNil(t, got)
	require.Empty(t, statetest.Differences(want, got))
}

package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// TestViews: what a person sees with any SQL tool.
func TestViews(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	rec := sample("a")
	rec.CreatedAt, rec.UpdatedAt, rec.LeaseUntil, rec.Input = now, now, now.Add(30*time.Second), []byte(long(inlineLimit+1))
	rec = create(t, s, rec)
	ch := follow(rec)
	ch.UpdatedAt, ch.Status, ch.EndsAs, ch.CurrentStep = now.Add(time.Second), state.StatusCompensating, state.StatusFailed, "first"
	ch.Failure = &state.Failure{Step: "second", Code: "card_declined", Message: "no", At: now}
	ch.Steps = []state.StepChange{
		{Index: 0, StepRecord: state.StepRecord{Name: "first", Status: state.StepDone, Attempts: 1, Output: []byte(`{"id":9007199254740993}`), StartedAt: now, EndedAt: now.Add(250 * time.Millisecond)}},
		{Index: 1, StepRecord: state.StepRecord{Name: "second", Status: state.StepPending, Attempts: 2, Unknown: true, Error: ch.Failure, StartedAt: now}},
	}
	ch.Messages = []outbox.Message{message(rec, 0, `{"a":1}`), message(rec, 1, "\x00\xff")}
	ch.Audit = []state.AuditEntry{{At: now, Actor: "me", Verb: "retry", Step: "second", Note: "please"}}
	commit(t, s, rec, ch)
	commit(t, s, rec, stepDone(rec, 2, ` `+long(inlineLimit)))
	same(t, rec, get(t, s, rec.Key))

	c := tool(t, s.path, zombiezen.OpenReadOnly)
	require.Equal(t, [][]string{{
		rec.Key, "operation", "COMPENSATING", "first", "FAILED", "second", "card_declined", "2026-01-02T03:04:05.678Z", "NULL", string(rec.Input), "NULL",
		`["first","second","third"]`, "3",
	}}, query(t, c, `SELECT idempotency_key, operation, status, current_step, ends_as, failed_step, failure_code, created_at, expiration, input,
  response_data, plan, revision FROM runs`))
	require.Equal(t, [][]string{
		{"1", "first", "DONE", "1", "0", `{"id":9007199254740993}`, "NULL", "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.928Z"},
		{"2", "second", "PENDING", "2", "1", "NULL", "card_declined", "2026-01-02T03:04:05.678Z", "NULL"},
	}, query(t, c, `SELECT position, step, status, attempts, unknown, output, error_code, started_at, ended_at FROM run_steps WHERE position < 3`))
	require.Equal(t, [][]string{{string(rec.Steps[2].Output)}}, query(t, c, `SELECT output FROM run_steps WHERE position = 3`))
	require.Equal(t, [][]string{{"1", rec.Key + "/first/0", "topic", `{"a":1}`, "NULL"}, {"2", rec.Key + "/first/1", "topic", "AP8=", "NULL"}},
		query(t, c, `SELECT position, id, topic, body, parked FROM run_messages`))
	require.Equal(t, [][]string{{"1", "2026-01-02T03:04:05.678Z", "me", "retry", "second", "please"}},
		query(t, c, `SELECT position, at, actor, verb, step, note FROM run_audit`))
	require.Equal(t, [][]string{{"COMPENSATING", "1"}}, query(t, c, `SELECT status, count(*) FROM runs GROUP BY status`))
}

// TestViewsSayWhatBlocksARun: the same as BlockedBy.
func TestViewsSayWhatBlocksARun(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	own := &state.Failure{Step: "second", Code: "declined", Message: "no", At: at()}
	for id, edit := range map[string]func(*state.Record){
		"forward": func(rec *state.Record) { rec.CurrentStep = "second" },
		"back": func(rec *state.Record) {
			rec.EndsAs, rec.CurrentStep = state.StatusFailed, "first"
			rec.Steps[0] = state.StepRecord{Name: "first", Status: state.StepCompensating, UndoAttempts: 1, UndoError: &state.Failure{Step: "first", Code: "too_late", Message: "over", At: at()}}
		},
		"back, by another": func(rec *state.Record) { rec.EndsAs, rec.CurrentStep = state.StatusFailed, "first" },
		"not blocked":      func(rec *state.Record) { rec.Status, rec.EndsAs = state.StatusFailed, state.StatusFailed },
	} {
		rec := sample(id)
		rec.Status, rec.Failure, rec.Owner, rec.LeaseUntil = state.StatusBlocked, own, "", time.Time{}
		edit(rec)
		rec = create(t, s, rec)
		want := []string{"NULL", "NULL", "NULL"}
		if by := rec.BlockedBy(); by != nil {
			want = []string{by.Step, by.Code, by.Message}
		}
		c := tool(t, s.path, zombiezen.OpenReadOnly)
		require.Equal(t, [][]string{want}, query(t, c, `SELECT blocked_step, blocked_code, blocked_message FROM runs WHERE idempotency_key = ?`, rec.Key), id)
		if id == "back" {
			require.Equal(t, [][]string{{"too_late", "over"}}, query(t, c, `SELECT undo_error_code, undo_error_message FROM run_steps WHERE idempotency_key = ? AND position = 1`, rec.Key))
		}
	}
}

// TestViewsOfAnotherVersionAreMadeAnew: those that are as they should be stay, so that no open statement is prepared again.
func TestViewsOfAnotherVersionAreMadeAnew(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	shown := func() (text, version string) {
		c := tool(t, s.path)
		return query(t, c, `SELECT group_concat(sql, ';' ORDER BY name) FROM sqlite_schema WHERE type = 'view'`)[0][0], query(t, c, `PRAGMA schema_version`)[0][0]
	}
	right, before := shown()
	open(t, s.path)
	_, again := shown()
	require.Equal(t, before, again)

	c := tool(t, s.path)
	query(t, c, `DROP VIEW run_audit`)
	query(t, c, `DROP VIEW runs`)
	query(t, c, `CREATE VIEW runs AS SELECT idempotency_key FROM run_record`)
	open(t, s.path)
	repaired, _ := shown()
	require.Equal(t, right, repaired)
}

// TestListsGoByTheIndex: runs that are open or have failed are found without looking at those that are completed.
func TestListsGoByTheIndex(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := tool(t, s.path, zombiezen.OpenReadOnly)
	for _, q := range []string{
		listSQL([]state.Status{state.StatusInProgress}),
		listSQL([]state.Status{state.StatusInProgress, state.StatusInterrupted, state.StatusCompensating, state.StatusBlocked}),
		listSQL([]state.Status{state.StatusFailed, state.StatusReversed}),
	} {
		for _, row := range query(t, c, `EXPLAIN QUERY PLAN `+q) {
			require.NotContains(t, row[3], "SCAN r", q)
			require.NotContains(t, row[3], "TEMP B-TREE", q)
		}
	}
	for _, q := range []string{selectDue, selectExpired, selectByKey} {
		for _, row := range query(t, c, `EXPLAIN QUERY PLAN `+q) {
			require.NotContains(t, row[3], "TEMP B-TREE", q)
			require.NotContains(t, row[3], "SCAN r", q)
		}
	}
}

package upgrade

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var write = flag.Bool("write", false, "write the folder of a new record version; an existing one is never overwritten")

// digests pin what is never to be edited.
var digests = map[string]string{
	"testdata/v1/items.json":   "3ccfa5a2914264aa6a6485d2fd3cc16a0d21cd6a4e73543740cece7819d915cd",
	"testdata/v1/records.json": "97edbd5c8ea79e3dbda2c3bf8319d3d7ccf92998c822a1005b6a9df67cc3f1d9",
	"testdata/v1/runs.db":      "216ffd229c43fc27766dae80bbb93a33749322daa09d67b04188c00a154d8279",
}

// claimLease is shorter than the time between then and now.
const claimLease = time.Minute

var (
	then = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	now  = then.Add(24 * time.Hour)
)

func clockAt(at time.Time) *clock.Fake {
	clk := new(clock.Fake)
	clk.AutoAdvance()
	clk.Set(at)
	return clk
}

func (c runCase) key(id string) saga.Key {
	op := c.operation
	if op == "" {
		op = "shipment"
	}
	return saga.Key{Tenant: "tenant-a", Operation: op, ID: id}
}

func (c runCase) input() order {
	in := order{No: "order-001"}
	if c.long {
		in.Note = strings.Repeat("a long note; ", 200)
	}
	return in
}

func newSaga(t *testing.T, w *world, operation string, s state.Store, clk *clock.Fake) *saga.Orchestrator[order, string] {
	t.Helper()
	o, err := saga.New(w.definition(operation), s, saga.WithClock(clk), saga.WithRetry(steps.RetryPolicy{PerRun: 1}))
	require.NoError(t, err)
	return o
}

// writeAll makes every case happen on the store.
func writeAll(t *testing.T, s state.Store, clk *clock.Fake) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(cases)) {
		c := cases[id]
		w := &world{trouble: c.trouble}
		key := c.key(id)
		_, err := newSaga(t, w, key.Operation, &mortal{s, w}, clk).Run(t.Context(), key, c.input())
		if len(c.trouble) == 0 {
			require.NoError(t, err, id)
		} else {
			require.Error(t, err, id)
		}
		if c.after != nil {
			c.after(t, s, newSaga(t, new(world), key.Operation, s, clk), key)
		}
		rec, err := saga.NewOperator(s).Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, c.status, rec.Status, id)
	}
}

// TestRelease writes the folder of a new version, and sees to it that the present one has one.
func TestRelease(t *testing.T) {
	dir := versionDir(state.RecordVersion)
	if !*write {
		require.DirExists(t, dir, "a new record version: see testdata/README.md")
		return
	}
	require.NoDirExists(t, dir, "what a version has written is never written anew")
	clk := clockAt(then)
	mem := memory.New(memory.WithClock(clk))
	writeAll(t, mem, clk)
	records := map[string]json.RawMessage{}
	for id, c := range cases {
		rec, err := saga.NewOperator(mem).Get(t.Context(), c.key(id))
		require.NoError(t, err)
		records[id], err = state.MarshalRecord(rec)
		require.NoError(t, err)
	}
	clk = clockAt(then)
	path := filepath.Join(t.TempDir(), sqliteFile)
	lite := openSQLite(t, path, clk)
	writeAll(t, lite, clk)
	require.NoError(t, lite.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	clk = clockAt(then)
	dyn, client, table := newDynamo(t, clk)
	writeAll(t, dyn, clk)

	require.NoError(t, os.MkdirAll(dir, 0o755))
	writeJSON(t, filepath.Join(dir, portable), records)
	require.NoError(t, os.WriteFile(filepath.Join(dir, sqliteFile), file, 0o600))
	writeJSON(t, filepath.Join(dir, dynamoItems), dumpDynamo(t, client, table))
}

func versionDir(version int) string { return filepath.Join("testdata", fmt.Sprintf("v%d", version)) }

func TestWhatAVersionHasWrittenIsNeverEdited(t *testing.T) {
	found := map[string]string{}
	for i := range state.RecordVersion {
		dir := versionDir(i + 1)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			path := filepath.Join(dir, f.Name())
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			sum := sha256.Sum256(data)
			found[filepath.ToSlash(path)] = hex.EncodeToString(sum[:])
		}
	}
	assert.Equal(t, digests, found)
}

func TestRunsOfEarlierVersionsAreResumed(t *testing.T) {
	t.Parallel()
	for i := range state.RecordVersion {
		version, dir := i+1, versionDir(i+1)
		sources := map[string]func(t *testing.T, clk *clock.Fake) state.Store{
			"file of sqlite":    func(t *testing.T, clk *clock.Fake) state.Store { return loadSQLite(t, dir, clk) },
			"items of dynamodb": func(t *testing.T, clk *clock.Fake) state.Store { return loadDynamo(t, dir, clk) },
		}
		for kind, open := range storeOf {
			sources["records in "+kind] = func(t *testing.T, clk *clock.Fake) state.Store {
				s := open(t, clk)
				loadRecords(t, dir, s)
				return s
			}
		}
		for source, load := range sources {
			t.Run(filepath.Base(dir)+"/"+source, func(t *testing.T) {
				t.Parallel()
				clk := clockAt(now)
				s := load(t, clk)
				for id, c := range cases {
					if c.since <= version {
						t.Run(id, func(t *testing.T) { resume(t, s, clk, id, c) })
					}
				}
				left(t, s, version)
			})
		}
	}
}

// resume takes one run to its end, and looks at what became of it.
func resume(t *testing.T, s state.Store, clk *clock.Fake, id string, c runCase) {
	key := c.key(id)
	op := saga.NewOperator(s)
	rec, err := op.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, c.status, rec.Status)
	require.False(t, rec.LeaseLive(clk.Now()), "its lease has lapsed")
	if c.lead != nil {
		require.NoError(t, c.lead(t.Context(), op, key))
	}
	w := new(world)
	o := newSaga(t, w, key.Operation, s, clk)
	var info saga.RunInfo
	got, err := o.Run(t.Context(), key, c.input(), saga.Report(&info)) // the same request: its hash is the stored one
	switch c.rests {
	case state.StatusCompleted:
		require.NoError(t, err)
		assert.Equal(t, c.result(), got)
	case state.StatusFailed:
		require.ErrorIs(t, err, saga.ErrFailed)
	case state.StatusReversed:
		require.ErrorIs(t, err, saga.ErrReversed)
	default:
		require.ErrorIs(t, err, saga.ErrBlocked)
	}
	assert.Equal(t, c.calls, w.calls)
	assert.Equal(t, c.status.Ended(), info.Replayed)
	_, err = o.Run(t.Context(), key, order{No: "another"})
	require.ErrorIs(t, err, saga.ErrPayloadMismatch)

	rec, err = op.Get(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, c.rests, rec.Status)
}

// left looks at the messages that are due and parked once every run has ended.
func left(t *testing.T, s state.Store, version int) {
	t.Helper()
	due, parked, wantDue, wantParked := map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{}
	for id, c := range cases {
		runKey, err := c.key(id).Encode()
		require.NoError(t, err)
		if c.since <= version && len(c.due) > 0 {
			wantDue[runKey] = c.due
		}
		if c.since <= version && len(c.parked) > 0 {
			wantParked[runKey] = c.parked
		}
	}
	batches, err := s.Claim(t.Context(), 1000, claimLease)
	require.NoError(t, err)
	for _, b := range batches {
		due[b.RunKey] = ids(b.Messages)
		for _, m := range b.Messages {
			assert.Equal(t, "order-001", m.Key)
			assert.NotEmpty(t, m.Bytes())
		}
	}
	assert.Equal(t, wantDue, due)
	msgs, next, err := s.Parked(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, next)
	for _, m := range msgs {
		of, _ := state.MessageRun(m.ID)
		parked[of] = append(parked[of], ids([]outbox.Message{m})...)
	}
	assert.Equal(t, wantParked, parked)
}

// result is that of a completed run.
func (c runCase) result() string {
	in := c.input()
	if c.operation == "payout" {
		return output("tell", in)
	}
	return fmt.Sprint(len(output("a", in)+output("b", in)+output("c", in)), " and ", len(output("d", in)))
}

package dynamostore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

const (
	processes = 16
	// rounds is how many changes each process has to make to the one record.
	rounds    = 5
	procName  = "TSUZUKI_TEST_PROCESS"
	procURL   = "TSUZUKI_TEST_URL"
	procTable = "TSUZUKI_TEST_TABLE"
)

// Sixteen processes create one run at the same time and then take it from each other, each to record a result of its own
// in a line of the audit and in a message, while answers get lost, requests fail and are throttled. One has
// created it; each change of each process is there once, and in the order of the revisions.
func TestSixteenProcessesOnOneKeyWithFaults(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	p.Break(dynamotest.Random(seed))

	var wg sync.WaitGroup
	creators := make([]bool, processes)
	for i := range processes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			creators[i] = runProcess(t, strconv.Itoa(i), p.URL, dynamostore.TableOf(s))
		}()
	}
	wg.Wait()
	p.Break(nil)

	r, err := s.Get(t.Context(), "t#o#contended")
	require.NoError(t, err)
	var input struct{ By int }
	require.NoError(t, json.Unmarshal(r.Input, &input), "the input is that of a single process, out of its own sibling")
	for i, created := range creators {
		assert.False(t, created && i != input.By, "process %d thinks that it has created the run of %d", i, input.By)
	}
	assert.EqualValues(t, 1+processes*rounds, r.Revision, "no change is lost and none is made twice")
	lines := map[string]bool{}
	for i, a := range r.Audit {
		assert.False(t, lines[a.Note], "%s is there twice", a.Note)
		lines[a.Note] = true
		assert.Equal(t, a.Note, string(r.Outbox.Messages[i].Bytes()), "the message of the same change, in the same order")
	}
	assert.Len(t, lines, processes*rounds)
	var output struct{ Note, Fill string }
	require.NoError(t, json.Unmarshal(r.Steps[0].Output, &output))
	assert.Equal(t, r.Audit[len(r.Audit)-1].Note, output.Note, "the last change's result, out of the last change's sibling")
}

// runProcess runs one of the sixteen, and returns whether it thinks that it has created the run.
func runProcess(t *testing.T, name, url, table string) (created bool) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), procName+"="+name, procURL+"="+url, procTable+"="+table)
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "process %s: %s", name, out)
	return strings.Contains(string(out), createdIt)
}

const createdIt = "created it"

// processMain is what a process does instead of running tests.
func processMain(ctx context.Context, name string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s, err := dynamostore.New(dynamotest.NewClient(os.Getenv(procURL), transport), os.Getenv(procTable))
	if err != nil {
		return err
	}
	at := state.Milli(time.Now())
	rec := &state.Record{
		Key: "t#o#contended", Operation: "o", Plan: []string{"only"}, Steps: []state.StepRecord{{Name: "only", Status: state.StepPending}},
		Status: state.StatusInProgress, Owner: "p" + name, WriteID: "create-" + name, Runs: 1, Revision: 1, CreatedAt: at, UpdatedAt: at,
		Input: json.RawMessage(`{"By":` + name + `,"Fill":"` + strings.Repeat("f", 400) + `"}`), Retention: time.Hour,
	}
	now, err := insist(func() (*state.Record, error) { return s.Create(ctx, rec) })
	if err != nil {
		return err
	}
	if now == nil || now.WriteID == rec.WriteID {
		fmt.Println(createdIt)
		now = rec
	}
	for round := range rounds {
		if now, err = contend(ctx, s, now, fmt.Sprintf("%s/%d", name, round)); err != nil {
			return err
		}
	}
	return nil
}

// contend makes one change of this process, however often others are quicker, and returns the record after it.
func contend(ctx context.Context, s *dynamostore.Store, now *state.Record, note string) (*state.Record, error) {
	for try := 0; ; try++ {
		ch := contendedChange(now, note, fmt.Sprintf("%s/%d", note, try))
		current, err := insist(func() (*state.Record, error) {
			err := s.Commit(ctx, ch)
			var refused *state.ConflictError
			if errors.As(err, &refused) && refused.Current != nil {
				return refused.Current, nil
			}
			return nil, err
		})
		switch {
		case err != nil:
			return nil, err
		case current == nil:
			return now, ch.Apply(now)
		// Once another has written after it, the write ID no longer shows an own write; what it wrote does.
		case current.WriteID == ch.WriteID, slices.ContainsFunc(current.Audit, func(a state.AuditEntry) bool { return a.Note == note }):
			return current, nil
		}
		now = current
	}
}

func contendedChange(now *state.Record, note, writeID string) *state.Change {
	at := state.Milli(time.Now())
	output := json.RawMessage(`{"Note":"` + note + `","Fill":"` + strings.Repeat("f", 300) + `"}`)
	return &state.Change{
		Key: now.Key, IfOwner: now.Owner, IfRevision: now.Revision, WriteID: writeID, Owner: "p" + note, Runs: now.Runs + 1,
		Status: state.StatusInProgress, UpdatedAt: at,
		Steps:    []state.StepChange{{StepRecord: state.StepRecord{Name: "only", Status: state.StepPending, Attempts: now.Runs, Output: output}}},
		Audit:    []state.AuditEntry{{At: at, Verb: "retry", Note: note}},
		Messages: []outbox.Message{message(now.Key+"/only/"+note, note, at)},
	}
}

// insist makes a call until its answer is known.
func insist(call func() (*state.Record, error)) (*state.Record, error) {
	var err error
	for range 50 {
		var rec *state.Record
		if rec, err = call(); err == nil {
			return rec, nil
		}
		for _, definite := range namedErrors {
			if errors.Is(err, definite) {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("no answer in 50 tries: %w", err)
}

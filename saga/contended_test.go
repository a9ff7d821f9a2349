package saga_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

const (
	crowd  = 16
	deaths = 3 // of the five whose turn comes, every other one
)

// Sixteen processes run one key on DynamoDB at once, and then the next, while answers are lost, requests fail before and
// after their effect and are throttled; half of them have an SDK that does not try again. Of each of the first five keys
// the first holder that comes to a step, another one each time, dies between its effect and its record, or stands still
// there until another has taken over. All that live get the one result, each effect is there once, and what was
// acknowledged to anyone has stayed.
func TestSixteenProcessesRunOneKeyOnDynamoDBWithFaults(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	allOld := seed%2 == 0 // whether a refused write comes back with the record, or a read has to follow
	t.Logf("seed %d", seed)
	proxy := dynamotest.Start(t, allOld)
	client, table := dynamoTable(t, proxy.URL)
	store, err := dynamostore.New(client, table)
	require.NoError(t, err)
	office := bureau(t.TempDir())
	s := &site{place: proxy.URL + " " + table, ledger: fileLedger(filepath.Join(t.TempDir(), "ledger"))}
	proxy.Break(dynamotest.Random(seed))
	said := s.contend(t, office)
	proxy.Break(nil)
	require.Len(t, said, crowd)

	var derived []string
	for k := range herdKeys {
		derived = append(derived, calledKeys(herdKey(k))...)
		rec := recordOf(t, store, herdKey(k), "chain")
		vouchers := office.vouchers(t, herdKey(k))
		checkContended(t, rec, vouchers)
		witnesses := make([]testimony, 0, crowd)
		for _, process := range said {
			witnesses = append(witnesses, process[k])
		}
		dead := checkTestimonies(t, rec, vouchers, witnesses)
		require.Equal(t, min(k/2+1, deaths), dead, "those who died of this key or one before")
	}
	calls := s.ledger.lines()
	require.ElementsMatch(t, derived, slices.Compact(slices.Sorted(slices.Values(calls))), "one derived key a step")
	t.Logf("%d calls of steps, %d requests", len(calls), proxy.Requests())

	relay, err := relayTo(store, s.queue())
	require.NoError(t, err)
	require.NoError(t, relay.Drain(t.Context()))
	require.Len(t, s.queue().ids(), herdKeys*five)
	require.Empty(t, openEntries(t, client, table), "nothing stays behind in the index")
}

// vouchers are what the first call of each step of a run got.
func (b bureau) vouchers(t *testing.T, key saga.Key) (out []string) {
	t.Helper()
	for _, call := range calledKeys(key) {
		_, derived, _ := strings.Cut(call, " ")
		first, err := os.ReadFile(b.file(derived))
		require.NoError(t, err)
		out = append(out, string(first))
	}
	return out
}

// checkContended checks a run's record against what was given out.
func checkContended(t *testing.T, rec *state.Record, vouchers []string) {
	t.Helper()
	require.Equal(t, state.StatusCompleted, rec.Status)
	require.Len(t, rec.Outbox.Messages, five, "the message of each step once, in order")
	for i, v := range vouchers {
		require.JSONEq(t, fmt.Sprintf(`{"id":%q}`, v), string(rec.Steps[i].Output))
		m := rec.Outbox.Messages[i]
		require.Equal(t, fmt.Sprintf("%s/s%d/0", rec.Key, i+1), m.ID)
		require.JSONEq(t, string(rec.Steps[i].Output), string(m.Bytes()))
	}
}

// checkTestimonies checks a run's record against what the processes say. It returns how many have not got its result.
func checkTestimonies(t *testing.T, rec *state.Record, vouchers []string, said []testimony) (dead int) {
	t.Helper()
	creators, written := 0, map[int64]bool{}
	for i, process := range said {
		if process.Result == nil {
			dead++
		} else {
			require.Equal(t, vouchers, process.Result, "process %d", i)
		}
		if process.Created {
			creators++
		}
		for _, revision := range process.Revisions {
			require.False(t, written[revision], "two processes think that they have written revision %d", revision)
			written[revision] = true
			require.LessOrEqual(t, revision, rec.Revision)
		}
		for step, outputs := range process.Done {
			at := slices.Index(rec.Plan, step)
			require.Equal(t, []string{string(rec.Steps[at].Output)}, outputs, "what was acknowledged of %s has stayed", step)
		}
	}
	require.LessOrEqual(t, creators, 1, "one has created it")
	t.Logf("%s: %d revisions, %d of them acknowledged at once, %d take-ups", rec.Key, rec.Revision, len(written)+creators, rec.Runs-1)
	return dead
}

// contend runs the processes, and returns what they have to say, the dead ones up to their death.
func (s *site) contend(t *testing.T, office bureau) (said [][herdKeys]testimony) {
	t.Helper()
	begin := time.Now().Add(time.Second).UnixMilli()
	var mu sync.Mutex
	var wg sync.WaitGroup
	died := 0
	for i := range crowd {
		retries := "often"
		if i%2 == 0 {
			retries = "once"
		}
		cmd, stdout := s.process(t.Context(), "contended", fmt.Sprintf("%s|%s|%d", office, retries, begin))
		require.NoError(t, cmd.Start())
		wg.Go(func() {
			err := cmd.Wait()
			mu.Lock()
			defer mu.Unlock()
			if err != nil && cmd.ProcessState.ExitCode() == crashed {
				died++
			} else if err != nil {
				t.Errorf("process %d: %v", i, err)
				return
			}
			said = append(said, childSaid[[herdKeys]testimony](t, stdout))
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	require.Equal(t, deaths, died)
	return said
}

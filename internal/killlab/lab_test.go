package killlab

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

var (
	killsWanted = flag.Int("kills", 60, "how many processes are killed on each store")
	seedWanted  = flag.Uint64("seed", 0, "of what is random; 0: another one each time")
)

const workers = 3

func TestKilledProcessesOnSQLite(t *testing.T) { killOn(t, onSQLite) }

// Without a server the test is skipped aloud, and fails in CI.
func TestKilledProcessesOnDynamoDB(t *testing.T) { killOn(t, onDynamo) }

// lab is one test's store, ledger and parent.
type lab struct {
	to     told // what workers are told
	seed   uint64
	ledger *client
	store  state.Store
	op     *saga.Operator
	number atomic.Int64 // of the last worker

	kills, atStart atomic.Int64 // of which before they had begun to work
	slow           slowness
	cancels, leads int // by the parent
}

func killOn(t *testing.T, kind string) {
	seed := *seedWanted
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again: go test -run '^%s$' ./internal/killlab -kills %d -seed %d -v", t.Name(), *killsWanted, seed)
	place := placeOf(t, kind)
	file := filepath.Join(t.TempDir(), "ledger")
	ledger, err := start("ledger", told{Seed: seed, Ledger: file})
	require.NoError(t, err)
	l := &lab{to: told{Store: kind, Place: place, Ledger: <-ledger.said}, seed: seed}
	l.ledger = newClient(l.to.Ledger, 0)
	defer l.ledger.close()
	store, closed, err := openStore(t.Context(), kind, place)
	require.NoError(t, err)
	l.store, l.op = store, saga.NewOperator(store)

	began := time.Now()
	l.chaos(t)
	chaos := time.Since(began)
	handed := l.drain(t)
	ledger.finish(t)
	b := book{lines: linesOf(t, file), records: map[string]*state.Record{}, lease: paces[kind].lease}
	for no := range handed {
		_, key, _ := taskOf(no)
		rec, err := l.op.Get(t.Context(), key)
		require.NoError(t, err, key)
		b.records[rec.Key] = rec
	}
	assert.NoError(t, closed())
	for _, wrong := range reconcile(b) {
		assert.Fail(t, wrong)
	}
	t.Logf("%s: %d processes killed in %v, %d of them before they had begun; the rest took %v", kind, l.kills.Load(),
		chaos.Round(time.Millisecond), l.atStart.Load(), (time.Since(began) - chaos).Round(time.Millisecond))
	t.Logf("the parent asked for %d cancels and led %d runs out", l.cancels, l.leads)
	t.Log(figures(b))
	assert.GreaterOrEqual(t, int(l.kills.Load()), *killsWanted)
}

// chaos kills and starts workers until enough have been killed.
func (l *lab) chaos(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	over := make(chan struct{})
	for slot := range workers {
		rng := rand.New(rand.NewPCG(l.seed, uint64(slot)+10))
		wg.Go(func() {
			for l.kills.Load() < int64(*killsWanted) {
				if err := l.killOne(rng); err != nil {
					t.Errorf("a worker: %v", err)
					return
				}
			}
		})
	}
	var parent sync.WaitGroup
	parent.Go(func() {
		rng := rand.New(rand.NewPCG(l.seed, 20))
		for {
			select {
			case <-over:
				return
			case <-time.After(40 * time.Millisecond):
				l.attend(t, rng)
			}
		}
	})
	wg.Wait()
	close(over)
	parent.Wait()
	require.False(t, t.Failed())
}

func (l *lab) worker(seed uint64) (*process, error) {
	to := l.to
	to.Seed, to.Worker = seed, int(l.number.Add(1))
	return start("worker", to)
}

// killOne starts a worker and kills it: mostly at work, and at times while it opens the store.
func (l *lab) killOne(rng *rand.Rand) error {
	p, err := l.worker(rng.Uint64())
	if err != nil {
		return err
	}
	began := false
	if rng.IntN(8) == 0 {
		select {
		case <-time.After(time.Duration(rng.IntN(80)) * time.Millisecond):
		case _, began = <-p.said:
		}
	} else {
		select {
		case _, began = <-p.said:
			time.Sleep(5*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(paces[l.to.Store].life)*l.slow.factor()))
		case <-time.After(time.Minute):
			err = errors.New("it does not begin to work")
		}
	}
	alive, ended := p.kill()
	if !alive {
		return errors.Join(err, fmt.Errorf("it has ended by itself: %w", ended))
	}
	l.kills.Add(1)
	if !began {
		l.atStart.Add(1)
	}
	return err
}

// slowness is by how much longer workers live where a busy machine lets them get nothing done in their time.
type slowness struct {
	mu    sync.Mutex
	times float64 // 0: 1
	kills int64
	done  int
}

func (s *slowness) factor() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(1, s.times)
}

// see looks, after every ten kills, at how many jobs were done since the ten before.
func (s *slowness) see(kills int64, done int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kills < s.kills+10 {
		return
	}
	switch got := done - s.done; {
	case got < 4:
		s.times = min(6, max(1, s.times)*1.6)
	case got > 12:
		s.times /= 1.6
	}
	s.kills, s.done = kills, done
}

// attend is what a person does: lead blocked runs out, and cancel one now and then. rng nil: no cancels.
func (l *lab) attend(t *testing.T, rng *rand.Rand) progress {
	var pr progress
	if err := l.ledger.ask(t.Context(), "/progress", rng == nil, &pr); err != nil {
		t.Errorf("the ledger: %v", err)
		return pr
	}
	for _, no := range pr.Blocked {
		_, key, _ := taskOf(no)
		err := l.op.Retry(t.Context(), key, "the provider knows nothing of it")
		var ok bool
		switch {
		case err == nil:
			l.leads++
		case !errors.Is(err, saga.ErrNotAllowed) && !errors.Is(err, saga.ErrInProgress):
			t.Logf("retry of %v: %v", key, err) // another time, then
			continue
		}
		if err := l.ledger.ask(t.Context(), "/report", report{No: no, Again: true}, &ok); err != nil {
			t.Errorf("the ledger: %v", err)
		}
	}
	l.slow.see(l.kills.Load(), pr.Handed-len(pr.Open))
	if rng != nil && len(pr.Open) > 0 && rng.IntN(12) == 0 {
		_, key, _ := taskOf(pr.Open[rng.IntN(len(pr.Open))])
		if err := l.op.Cancel(t.Context(), key, "not wanted any more"); err == nil {
			l.cancels++
		}
	}
	return pr
}

// drain lets workers finish in peace, and returns how many jobs there were.
func (l *lab) drain(t *testing.T) int {
	t.Helper()
	var calm []*process
	for range workers {
		p, err := l.worker(1)
		require.NoError(t, err)
		calm = append(calm, p)
	}
	defer func() {
		for _, p := range calm {
			p.finish(t)
		}
	}()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(40 * time.Millisecond) {
		pr := l.attend(t, nil)
		if len(pr.Open)+len(pr.Blocked) == 0 {
			if left := l.restless(t, pr.Handed); left == "" {
				return pr.Handed
			} else if time.Now().After(until) {
				require.Fail(t, "runs that do not come to rest", left)
			}
		}
		if time.Now().After(until) {
			require.Fail(t, "jobs that do not come to an end", "%+v", pr)
		}
	}
}

// restless are runs that are still to be worked on, by a worker or by a relay.
func (l *lab) restless(t *testing.T, handed int) string {
	t.Helper()
	left := ""
	for no := range handed {
		_, key, _ := taskOf(no)
		rec, err := l.op.Get(t.Context(), key)
		require.NoError(t, err, key)
		if rec.Open() {
			left += fmt.Sprintf("%s: %s, %d messages\n", rec.Key, rec.Status, len(rec.Outbox.Messages))
		}
	}
	return left
}

func linesOf(t *testing.T, file string) []line {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	var out []line
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var l line
		require.NoError(t, json.Unmarshal(sc.Bytes(), &l))
		out = append(out, l)
	}
	require.NoError(t, sc.Err())
	return out
}

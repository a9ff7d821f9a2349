package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type entry = dispatch.Entry[struct{}]

var errBad = errors.New("bad")

// make entries of IDs like "a0", whose lane is the letter.
func entries(ids ...string) []entry {
	out := make([]entry, len(ids))
	for i, id := range ids {
		out[i] = entry{ID: id, Lane: id[:1], Size: 10}
	}
	return out
}

func names(es []entry) string {
	var ids []string
	for _, e := range es {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

func told(results []outbox.Result) map[string]string {
	out := map[string]string{}
	for _, r := range results {
		switch {
		case r.Refused:
			out[r.ID] = "refused"
		case errors.Is(r.Err, outbox.ErrHeldBack):
			out[r.ID] = "held"
		case r.Err != nil:
			out[r.ID] = "failed"
		default:
			out[r.ID] = "sent"
		}
	}
	return out
}

// requests is a request function that notes what it is given; bad are the IDs that fail.
func requests(log *[]string, bad map[string]*dispatch.Failure) dispatch.Request[struct{}] {
	return func(_ context.Context, es []entry) ([]*dispatch.Failure, *dispatch.Failure) {
		*log = append(*log, names(es))
		failures := make([]*dispatch.Failure, len(es))
		for i, e := range es {
			failures[i] = bad[e.ID]
		}
		return failures, nil
	}
}

func TestRequestsAreFilledUp(t *testing.T) {
	var log []string
	res, err := dispatch.Send(t.Context(), entries("a0", "a1", "b0", "a2", "b1"), dispatch.Limits{Entries: 2, Bytes: 100}, requests(&log, nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"a0 a1", "b0 a2", "b1"}, log)
	assert.Len(t, res, 5)

	log = nil
	_, err = dispatch.Send(t.Context(), entries("a0", "a1", "b0", "a2", "b1"), dispatch.Limits{Entries: 10, Bytes: 25}, requests(&log, nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"a0 a1", "b0 a2", "b1"}, log)

	big := entries("a0", "b0", "a1")
	big[0].Size = 1000
	log = nil
	_, err = dispatch.Send(t.Context(), big, dispatch.Limits{Entries: 10, Bytes: 100}, requests(&log, nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"a0", "b0 a1"}, log, "what is too big for any request is left to the service")
}

func TestOnePerLane(t *testing.T) {
	var log []string
	bad := map[string]*dispatch.Failure{"a1": {Err: errBad}}
	res, err := dispatch.Send(t.Context(), entries("a0", "a1", "b0", "a2", "b1", "c0"), dispatch.Limits{Entries: 10, Bytes: 100, OnePerLane: true}, requests(&log, bad))
	require.NoError(t, err)
	assert.Equal(t, []string{"a0 b0 c0", "a1 b1"}, log)
	assert.Equal(t, map[string]string{"a0": "sent", "a1": "failed", "a2": "held", "b0": "sent", "b1": "sent", "c0": "sent"}, told(res))
}

func TestUnsendableEntryIsRefusedInItsTurn(t *testing.T) {
	var log []string
	es := entries("a0", "a1", "a2", "b0")
	es[1].Err = errBad
	res, err := dispatch.Send(t.Context(), es, dispatch.Limits{Entries: 10, Bytes: 100}, requests(&log, nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"a0 b0"}, log)
	assert.Equal(t, map[string]string{"a0": "sent", "a1": "refused", "a2": "held", "b0": "sent"}, told(res))

	// When the one before it fails, it isn't its turn.
	log = nil
	res, err = dispatch.Send(t.Context(), es, dispatch.Limits{Entries: 10, Bytes: 100}, requests(&log, map[string]*dispatch.Failure{"a0": {Err: errBad}}))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a0": "failed", "a1": "held", "a2": "held", "b0": "sent"}, told(res))
}

func TestRefusedRequestIsSentEntryByEntry(t *testing.T) {
	var log []string
	request := func(_ context.Context, es []entry) ([]*dispatch.Failure, *dispatch.Failure) {
		log = append(log, names(es))
		for _, e := range es {
			if e.ID == "b0" {
				return nil, &dispatch.Failure{Err: errBad, Refused: true}
			}
		}
		return make([]*dispatch.Failure, len(es)), nil
	}
	res, err := dispatch.Send(t.Context(), entries("a0", "b0", "b1", "c0"), dispatch.Limits{Entries: 10, Bytes: 100}, request)
	require.NoError(t, err)
	assert.Equal(t, []string{"a0 b0 b1 c0", "a0", "b0", "c0"}, log)
	assert.Equal(t, map[string]string{"a0": "sent", "b0": "refused", "b1": "held", "c0": "sent"}, told(res))
}

func TestTargetThatTakesNothingIsAskedOnce(t *testing.T) {
	n := 0
	res, err := dispatch.Send(t.Context(), entries("a0", "a1", "b0", "c0"), dispatch.Limits{Entries: 2, Bytes: 100}, func(context.Context, []entry) ([]*dispatch.Failure, *dispatch.Failure) {
		n++
		return nil, &dispatch.Failure{Err: errBad, Refused: true, Target: true}
	})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, map[string]string{"a0": "refused", "a1": "refused", "b0": "refused", "c0": "refused"}, told(res))
}

func TestOutageKeepsWhatIsCertain(t *testing.T) {
	n := 0
	request := func(_ context.Context, es []entry) ([]*dispatch.Failure, *dispatch.Failure) {
		if n++; n == 2 {
			return nil, &dispatch.Failure{Err: errBad}
		}
		return make([]*dispatch.Failure, len(es)), nil
	}
	res, err := dispatch.Send(t.Context(), entries("a0", "b0", "c0", "d0"), dispatch.Limits{Entries: 2, Bytes: 100}, request)
	require.ErrorIs(t, err, errBad)
	assert.Equal(t, map[string]string{"a0": "sent", "b0": "sent"}, told(res))
	assert.Equal(t, 2, n, "nothing more is tried")

	n = 0
	calls := 0
	res, err = dispatch.Send(t.Context(), entries("a0", "b0", "c0"), dispatch.Limits{Entries: 9, Bytes: 100}, func(_ context.Context, es []entry) ([]*dispatch.Failure, *dispatch.Failure) {
		switch calls++; calls {
		case 1:
			return nil, &dispatch.Failure{Err: errBad, Refused: true}
		case 2:
			return make([]*dispatch.Failure, 1), nil
		}
		return nil, &dispatch.Failure{Err: errBad}
	})
	require.ErrorIs(t, err, errBad)
	assert.Equal(t, map[string]string{"a0": "sent"}, told(res))
}

// Whatever fails: every entry gets one result or none (in an outage), and within a lane nothing is accepted behind what
// was not, if the broker keeps an order.
func TestNoMessageOvertakesAnotherOfItsLane(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var es []entry
		count := map[string]int{}
		for range r.IntN(40) {
			lane := string(rune('a' + r.IntN(4)))
			e := entry{ID: fmt.Sprint(lane, count[lane]), Lane: lane, Size: 1 + r.IntN(30)}
			if r.IntN(15) == 0 {
				e.Err = errBad
			}
			count[lane]++
			es = append(es, e)
		}
		var accepted []string
		request := func(_ context.Context, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
			require.LessOrEqual(t, len(batch), 5)
			switch r.IntN(12) {
			case 0:
				return nil, &dispatch.Failure{Err: errBad}
			case 1:
				return nil, &dispatch.Failure{Err: errBad, Refused: true}
			}
			failures := make([]*dispatch.Failure, len(batch))
			for i, e := range batch {
				require.NoError(t, e.Err)
				if r.IntN(6) == 0 {
					failures[i] = &dispatch.Failure{Err: errBad, Refused: r.IntN(2) == 0}
				} else {
					accepted = append(accepted, e.ID)
				}
			}
			return failures, nil
		}
		res, err := dispatch.Send(t.Context(), es, dispatch.Limits{Entries: 5, Bytes: 60, OnePerLane: true}, request)
		next := map[string]int{}
		for _, id := range accepted {
			require.Equal(t, fmt.Sprint(id[:1], next[id[:1]]), id, "seed %d", seed)
			next[id[:1]]++
		}
		got := told(res)
		require.Len(t, got, len(res), "one result each, seed %d", seed)
		if err == nil {
			require.Len(t, got, len(es), "seed %d", seed)
		}
		for _, id := range accepted {
			require.Equal(t, "sent", got[id], "seed %d", seed)
		}
	}
}

func TestEachSendsLanesSideBySide(t *testing.T) {
	var mu sync.Mutex
	var log []string
	busy, most := 0, 0
	meet := make(chan struct{})
	res, err := dispatch.Each(t.Context(), entries("a0", "a1", "b0", "a2", "b1", "c0"), 2, func(_ context.Context, e entry) (*dispatch.Failure, bool) {
		mu.Lock()
		busy++
		most = max(most, busy)
		first := len(log) < 2
		log = append(log, e.ID)
		if len(log) == 2 {
			close(meet)
		}
		mu.Unlock()
		if first {
			select { // two lanes are under way together
			case <-meet:
			case <-time.After(10 * time.Second):
			}
		}
		mu.Lock()
		busy--
		mu.Unlock()
		if e.ID == "a1" {
			return &dispatch.Failure{Err: errBad, Refused: true}, false
		}
		return nil, false
	})
	require.NoError(t, err)
	assert.Equal(t, 2, most)
	assert.Equal(t, map[string]string{"a0": "sent", "a1": "refused", "a2": "held", "b0": "sent", "b1": "sent", "c0": "sent"}, told(res))
}

func TestEachStopsInAnOutage(t *testing.T) {
	var log []string
	es := entries("a0", "a1", "b0", "c0")
	es[0].Err = errBad
	res, err := dispatch.Each(t.Context(), es, 1, func(_ context.Context, e entry) (*dispatch.Failure, bool) {
		log = append(log, e.ID)
		return &dispatch.Failure{Err: errBad}, true
	})
	require.ErrorIs(t, err, errBad)
	assert.Equal(t, []string{"b0"}, log)
	assert.Equal(t, map[string]string{"a0": "refused", "a1": "held"}, told(res))
}

func TestRoutes(t *testing.T) {
	_, err := dispatch.Routes{}.Targets()
	require.Error(t, err)
	_, err = dispatch.Routes{ByTopic: map[string]string{"t": ""}}.Targets()
	require.Error(t, err)
	r := dispatch.Routes{Default: "d", ByTopic: map[string]string{"a": "x", "b": "x", "c": "d"}}
	all, err := r.Targets()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"d", "x"}, all)
	got, err := r.Target("a")
	require.NoError(t, err)
	assert.Equal(t, "x", got)
	got, err = r.Target("other")
	require.NoError(t, err)
	assert.Equal(t, "d", got)
	_, err = dispatch.Routes{ByTopic: map[string]string{"a": "x"}}.Target("other")
	require.ErrorIs(t, err, dispatch.ErrNoTarget)
}

func TestAnswers(t *testing.T) {
	a := dispatch.NewAnswers(3, errBad)
	a.Set(dispatch.Name(1), nil)
	a.Set(dispatch.Name(2), &dispatch.Failure{Refused: true})
	for _, name := range []string{"", "x", "3", "-1"} {
		a.Set(name, nil)
	}
	assert.Equal(t, dispatch.Answers{{Err: errBad}, nil, {Refused: true}}, a)
}

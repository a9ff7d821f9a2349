package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// gets are what n calls of Get meet, with calls of another method between them if wanted.
func gets(t *testing.T, s *sagatest.FaultyStore, n int, between bool) (met []string) {
	t.Helper()
	for range n {
		if between {
			_, err := s.List(t.Context(), state.Query{})
			require.NoError(t, err)
		}
		_, err := s.Get(t.Context(), newRecord().Key)
		if err != nil {
			met = append(met, err.Error())
		} else {
			met = append(met, ".")
		}
	}
	return met
}

func count(met []string, what string) (n int) {
	for _, m := range met {
		if m == what {
			n++
		}
	}
	return n
}

func TestASeedGivesTheNthCallTheSameFault(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	seeded := func(seed uint64, between bool) []string {
		_, s, _ := created(t)
		s.Seeded(seed, 4, sagatest.Method("Get"), sagatest.Fail(one), sagatest.Fail(two))
		return gets(t, s, 400, between)
	}
	met := seeded(1, false)
	assert.Equal(t, met, seeded(1, false))
	assert.Equal(t, met, seeded(1, true), "whatever else is called")
	assert.NotEqual(t, met, seeded(2, false))
	assert.InDelta(t, 300, count(met, "."), 30)
	assert.InDelta(t, 50, count(met, "one"), 20)
	assert.InDelta(t, 50, count(met, "two"), 20)
}

// Where no faults are given, calls are not made or not answered.
func TestASeedLosesCallsAndAnswers(t *testing.T) {
	made := map[bool]int{}
	for seed := range uint64(100) {
		inner, s, rec := created(t)
		s.Seeded(seed, 0, sagatest.Method("Commit"))
		require.ErrorIs(t, s.Commit(t.Context(), next(rec, "w2")), sagatest.ErrNoAnswer)
		made[writeID(t, inner) == "w2"]++
	}
	assert.InDelta(t, 50, made[true], 20)
	assert.Equal(t, 100, made[true]+made[false])
}

// A call that the seed spares is left to the rules behind it, and a script counts before a seed that is younger.
func TestASeedAndAScript(t *testing.T) {
	_, s, _ := created(t)
	scripted, drawn := errors.New("scripted"), errors.New("drawn")
	s.On(sagatest.Nth("Get", 3), sagatest.Fail(scripted))
	s.Seeded(1, 1, func(c sagatest.StoreCall) bool { return c.Nth > 1 }, sagatest.Fail(drawn))
	assert.Equal(t, []string{".", "drawn", "scripted", "drawn"}, gets(t, s, 4, false))
	s.Clear()
	s.Seeded(1, 1<<30, sagatest.Method("Get")).Always(sagatest.Method("Get"), sagatest.Fail(scripted))
	assert.Equal(t, []string{"scripted", "scripted"}, gets(t, s, 2, false))
	s.Clear()
	assert.Equal(t, []string{"."}, gets(t, s, 1, false))
}

// One in two writes of a run is not made or not answered, on 200 seeds: its effects happen once, and its result is that
// of any other.
func TestARunOverASeededNetwork(t *testing.T) {
	interrupted := 0
	for seed := range uint64(200) {
		clk, rec := new(sagatest.Clock), new(sagatest.Recorder)
		clk.AutoAdvance()
		inner := memory.New(memory.WithClock(clk))
		s := sagatest.NewFaultyStore(inner).Seeded(seed, 2, sagatest.Writes)
		calls := []string{}
		note := func(ctx context.Context, call saga.Call, next func(context.Context) error) error {
			calls = append(calls, fmt.Sprint(call.Phase, " ", call.Step))
			return next(ctx)
		}
		o, err := saga.New(travel(rec), s, saga.WithClock(clk), saga.WithInterceptor(note))
		require.NoError(t, err)
		var got booking
		for {
			if got, err = o.Run(t.Context(), purchaseKey, somePurchase); err == nil {
				break
			}
			require.True(t, errors.Is(err, saga.ErrStore) || errors.Is(err, saga.ErrInterrupted) || errors.Is(err, saga.ErrInProgress), err)
			interrupted++
			clk.Advance(saga.DefaultLease)
		}
		assert.NotEmpty(t, got.Flight)
		assert.NotEmpty(t, got.Hotel)
		assert.NotEmpty(t, got.Car)
		stored, err := inner.Get(t.Context(), "t#book_trip#o-1")
		require.NoError(t, err)
		assert.Equal(t, state.StatusCompleted, stored.Status, seed)
		assert.Len(t, stored.Outbox.Messages, 2, seed)
		assert.Equal(t, []string{"do flight", "do hotel", "do car", "do tell"}, slices.Compact(calls), seed)
	}
	t.Logf("200 runs were interrupted %d times", interrupted)
}

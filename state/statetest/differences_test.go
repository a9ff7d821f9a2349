package statetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// TestDifferencesSeeEveryField: a filled record, with each of its fields cleared in turn, is another record.
func TestDifferencesSeeEveryField(t *testing.T) {
	t.Parallel()
	want := new(state.Record)
	Fill(t, want)
	require.Empty(t, Differences(want, want.Clone()))
	cleared := 0
	clearEach(reflect.ValueOf(want).Elem(), func(empty, restore func()) {
		before := want.Clone()
		empty()
		assert.NotEmpty(t, Differences(before, want))
		restore()
		cleared++
	})
	require.Empty(t, Differences(want, want.Clone()))
	require.Greater(t, cleared, 80)
}

// clearEach calls f with functions that clear and restore each leaf below v.
func clearEach(v reflect.Value, f func(empty, restore func())) {
	leaf := v.Type() == timeType || v.Kind() == reflect.Map || v.Kind() == reflect.Interface
	switch {
	case leaf || v.Kind() != reflect.Struct && v.Kind() != reflect.Pointer && (v.Kind() != reflect.Slice || v.Type().Elem().Kind() == reflect.Uint8):
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		f(func() { v.SetZero() }, func() { v.Set(old) })
	case v.Kind() == reflect.Pointer:
		clearEach(v.Elem(), f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			clearEach(v.Index(i), f)
		}
	default:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "_" {
				clearEach(v.Field(i), f)
			}
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC()
	same := [][2]any{
		{&state.Record{Plan: nil, Steps: []state.StepRecord{}}, &state.Record{Plan: []string{}}},
		{&state.Record{CreatedAt: at.In(time.FixedZone("x", 60))}, &state.Record{CreatedAt: at}},
	}
	for _, p := range same {
		assert.Empty(t, Differences(p[0], p[1]))
	}
	other := [][2]any{
		{&state.Record{CreatedAt: at}, &state.Record{CreatedAt: at.In(time.FixedZone("x", 60))}},
		{&state.Record{Failure: &state.Failure{}}, &state.Record{}},
		{&state.Record{}, &state.Record{Failure: &state.Failure{}}},
		{&state.Record{Input: []byte("null")}, &state.Record{}},
		{&state.Record{Plan: []string{"a", "b"}}, &state.Record{Plan: []string{"b", "a"}}},
	}
	for _, p := range other {
		assert.NotEmpty(t, Differences(p[0], p[1]))
	}
}

func TestTheFillerKnowsEveryFieldType(t *testing.T) {
	t.Parallel()
	rec, ch := new(state.Record), new(state.Change)
	Fill(t, rec)
	Fill(t, ch)
	covered(t, rec)
	covered(t, ch)
	seen := map[string]bool{}
	for _, s := range []string{rec.Key, rec.Operation, rec.Pivot, rec.Owner, rec.WriteID, rec.Steps[0].Name, rec.Steps[1].Name, string(rec.Input), string(rec.Response)} {
		assert.False(t, seen[s], "values are distinct")
		seen[s] = true
	}
}

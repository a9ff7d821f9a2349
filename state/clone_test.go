package state_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// memory collects the addresses of all that can be written to through v.
func memory(v reflect.Value, path string, found map[uintptr]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			found[v.Pointer()] = path
			memory(v.Elem(), path, found)
		}
	case reflect.Interface:
		if !v.IsNil() {
			memory(v.Elem(), path, found)
		}
	case reflect.Slice:
		if v.Cap() > 0 {
			found[v.Pointer()] = path
		}
		for i := range v.Len() {
			memory(v.Index(i), path, found)
		}
	case reflect.Map:
		found[v.Pointer()] = path
	case reflect.Struct:
		for i := range v.NumField() {
			memory(v.Field(i), path+"."+v.Type().Field(i).Name, found)
		}
	}
}

func assertNothingShared(t *testing.T, a, b any) {
	t.Helper()
	of := map[uintptr]string{}
	memory(reflect.ValueOf(a), "", of)
	require.Greater(t, len(of), 4, "the test sees nothing")
	other := map[uintptr]string{}
	memory(reflect.ValueOf(b), "", other)
	for at, path := range of {
		assert.Empty(t, other[at], "%s is shared", path)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	rec := new(state.Record)
	statetest.Fill(t, rec)
	c := rec.Clone()
	assert.Equal(t, rec, c)
	assertNothingShared(t, rec, c)
	o := rec.Outbox.Clone()
	assert.Equal(t, rec.Outbox, o)
	assertNothingShared(t, &rec.Outbox, &o)

	empty := (&state.Record{}).Clone()
	assert.Equal(t, &state.Record{}, empty, "nil stays nil")
}

func TestCloneMessage(t *testing.T) {
	t.Parallel()
	m := outbox.Message{ID: "i", Topic: "t", Body: []byte("body"), Attributes: map[string]string{"a": "b"}}
	c := state.CloneMessage(m)
	assert.Equal(t, m, c)
	c.Attributes["a"], c.Bytes()[0] = "x", 'x'
	assert.Equal(t, "b", m.Attributes["a"])
	assert.Equal(t, "body", string(m.Bytes()))
}

// disturb puts every time that can be reached from v off its grain.
func disturb(v reflect.Value) {
	far := time.FixedZone("far", -7*3600)
	each(v, func(v reflect.Value) {
		switch at := v.Addr().Interface().(type) {
		case *time.Time:
			if !at.IsZero() {
				*at = at.In(far).Add(345_678)
			}
		case *time.Duration:
			*at += 345_678
		}
	})
}

// each calls f for every settable value of a type without fields that are of interest.
func each(v reflect.Value, f func(v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		each(v.Elem(), f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), f)
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), f)
			}
		}
	case v.CanSet():
		f(v)
	}
}

func assertRounded(t *testing.T, rec *state.Record) {
	t.Helper()
	n := 0
	each(reflect.ValueOf(rec), func(v reflect.Value) {
		switch at := v.Addr().Interface().(type) {
		case *time.Time:
			n++
			assert.Zero(t, at.Nanosecond()%1e6, "%v", at)
			assert.Equal(t, time.UTC, at.Location())
		case *time.Duration:
			assert.Zero(t, *at%time.Second)
		}
	})
	assert.Greater(t, n, 15)
	assert.Zero(t, rec.ExpiresAt.Nanosecond())
}

func TestRoundMissesNoTime(t *testing.T) {
	t.Parallel()
	rec := new(state.Record)
	statetest.Fill(t, rec)
	rec.ExpiresAt = rec.ExpiresAt.Truncate(time.Second)
	want := rec.Clone()
	want.ExpiresAt = want.ExpiresAt.Add(time.Second) // never earlier than said
	want.Retention += time.Second
	disturb(reflect.ValueOf(rec))
	rec.Round()
	assertRounded(t, rec)
	assert.Empty(t, statetest.Differences(want, rec))

	zero := &state.Record{Steps: make([]state.StepRecord, 1), Failure: &state.Failure{}, Cancel: &state.CancelRequest{}}
	zero.Round()
	each(reflect.ValueOf(zero), func(v reflect.Value) { assert.True(t, v.IsZero(), "zero stays zero: %v", v) })
}

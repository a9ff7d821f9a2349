package statetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// filler puts a value of its own into every field that it finds by reflection, so that a store that drops or confuses a
// field, also one that the record gets later, is found out.
type filler struct {
	t  testing.TB
	n  int
	at time.Time
}

// Fill puts a value of its own into every field of the struct that v points to, so that a store or codec that drops or
// confuses one is found out. Statuses are valid, times are whole milliseconds; whatever else must hang together (plan and
// steps, the expiry) is for the caller to put right. A field of a type that it doesn't know fails the test.
func Fill(t testing.TB, v any) {
	t.Helper()
	f := &filler{t: t, at: now()}
	f.value(strings.TrimPrefix(reflect.TypeOf(v).String(), "*"), reflect.ValueOf(v).Elem())
}

// entries is how many a slice or a map gets.
const entries = 2

func (f *filler) value(path string, v reflect.Value) {
	f.n++
	if f.leaf(v) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Name != "_" {
				f.value(path+"."+field.Name, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(path, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), entries, entries))
		for i := range entries {
			f.value(path, v.Index(i))
		}
	default:
		require.Failf(f.t, "package statetest doesn't know how to fill a field", "%s is a %s: add it to filler.leaf", path, v.Type())
	}
}

// leaf fills what has no fields of its own.
func (f *filler) leaf(v reflect.Value) bool {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = f.at.Add(time.Duration(f.n)*time.Minute + time.Duration(f.n)*time.Millisecond)
	case *time.Duration:
		*p = time.Duration(f.n) * time.Second
	case *state.Status:
		*p = state.StatusCompensating
	case *state.StepStatus:
		all := state.StepStatuses()
		*p = all[1+f.n%(len(all)-1)]
	case *any: // the body of a message
		*p = fmt.Appendf(nil, "body %d \x00\xff", f.n)
	case *map[string]string:
		*p = map[string]string{}
		for i := range entries {
			(*p)[fmt.Sprintf("attribute %d.%d", f.n, i)] = fmt.Sprintf("value %d.%d", f.n, i)
		}
	default:
		return f.basic(v)
	}
	return true
}

func (f *filler) basic(v reflect.Value) bool {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(f.n))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes(fmt.Appendf(nil, `{"payload":%d}`, f.n))
	default:
		return false
	}
	return true
}

// leaves calls found for every field of v that has no fields of its own, by its path without the positions in slices.
func leaves(path string, v reflect.Value, found func(path string, zero bool)) {
	switch {
	case v.Type() == timeType || v.Kind() == reflect.Map || v.Kind() == reflect.Interface:
		found(path, v.IsZero())
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		leaves(path, v.Elem(), found)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Name != "_" {
				leaves(path+"."+field.Name, v.Field(i), found)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		if v.Len() == 0 {
			v = reflect.MakeSlice(v.Type(), 1, 1)
		}
		for i := range v.Len() {
			leaves(path, v.Index(i), found)
		}
	default:
		found(path, v.IsZero())
	}
}

// covered checks that every field is filled in at least one of the variants: what had to be taken back in one of them,
// so that it is legal, must stand in another.
func covered[T any](t testing.TB, variants ...*T) {
	t.Helper()
	filled := map[string]bool{}
	for _, v := range variants {
		leaves("", reflect.ValueOf(v).Elem(), func(path string, zero bool) { filled[path] = filled[path] || !zero })
	}
	for path, ok := range filled {
		require.True(t, ok, "package statetest tests no value of %T's field %s", *new(T), path)
	}
}

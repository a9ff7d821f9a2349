package statetest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Differences are the places where got, of the same type as want, is not what was put in, a line each. Nil and empty slices
// and maps are the same; times are compared as moments, and got's must be in UTC.
func Differences(want, got any) []string {
	var c comparison
	c.compare("", reflect.ValueOf(want), reflect.ValueOf(got))
	return c.found
}

func lines(found []string) string { return strings.Join(found, "\n") }

type comparison struct{ found []string }

func (c *comparison) add(path, format string, args ...any) {
	c.found = append(c.found, path+": "+fmt.Sprintf(format, args...))
}

var (
	timeType    = reflect.TypeFor[time.Time]()
	messageType = reflect.TypeFor[outbox.Message]()
)

func (c *comparison) compare(path string, want, got reflect.Value) {
	switch {
	case want.Type() == timeType:
		c.times(path, want.Interface().(time.Time), got.Interface().(time.Time))
		return
	case want.Type().Kind() == reflect.Slice && want.Type().Elem().Kind() == reflect.Uint8:
		if !bytes.Equal(want.Bytes(), got.Bytes()) {
			c.add(path, "%d bytes %.80q, want %d bytes %.80q", got.Len(), got.Bytes(), want.Len(), want.Bytes())
		}
		return
	}
	switch want.Kind() {
	case reflect.Pointer:
		if want.IsNil() || got.IsNil() {
			if want.IsNil() != got.IsNil() {
				c.add(path, "nil: %t, want %t", got.IsNil(), want.IsNil())
			}
			return
		}
		c.compare(path, want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			f := want.Type().Field(i)
			if want.Type() == messageType && f.Name == "Body" {
				c.bodies(path, want.Interface().(outbox.Message), got.Interface().(outbox.Message))
			} else if f.Name != "_" {
				c.compare(path+"."+f.Name, want.Field(i), got.Field(i))
			}
		}
	case reflect.Slice:
		if want.Len() != got.Len() {
			c.add(path, "%d entries, want %d", got.Len(), want.Len())
			return
		}
		for i := range want.Len() {
			c.compare(fmt.Sprintf("%s[%d]", path, i), want.Index(i), got.Index(i))
		}
	case reflect.Map:
		if want.Len() != got.Len() || want.Len() > 0 && !reflect.DeepEqual(want.Interface(), got.Interface()) {
			c.add(path, "%v, want %v", got.Interface(), want.Interface())
		}
	default:
		if !want.Equal(got) {
			c.add(path, "%.80q, want %.80q", fmt.Sprint(got.Interface()), fmt.Sprint(want.Interface()))
		}
	}
}

func (c *comparison) times(path string, want, got time.Time) {
	if !want.Equal(got) {
		c.add(path, "%v, want %v", got, want)
	}
	if got.Location() != time.UTC {
		c.add(path, "in %v, want UTC", got.Location())
	}
}

func (c *comparison) bodies(path string, want, got outbox.Message) {
	if _, ok := got.Body.([]byte); !ok && got.Body != nil {
		c.add(path+".Body", "a %T, want []byte", got.Body)
	}
	if w, g := want.Bytes(), got.Bytes(); !bytes.Equal(w, g) {
		c.add(path+".Body", "%d bytes %.80q, want %d bytes %.80q", len(g), g, len(w), w)
	}
}

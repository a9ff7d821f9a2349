package state

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tsuzuki-go/tsuzuki/internal/tame"
)

// Encode is v as JSON, the form in which payloads are stored. A panic of a MarshalJSON method becomes an error. Errors
// are of class [ErrInvalidInput].
func Encode(v any) (raw json.RawMessage, err error) {
	defer recovered(&err)
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %T can't be encoded as JSON: %w", ErrInvalidInput, v, tame.Error(err))
	}
	return b, nil
}

// Decode is the inverse of Encode, into the value that v points to. Numbers that land in an interface become
// json.Number, never float64, so that integers stay exact. Errors are of class [ErrInvalidInput].
func Decode(raw json.RawMessage, v any) (err error) {
	defer recovered(&err)
	if !holdsInterface(reflect.TypeOf(v)) {
		if err := json.Unmarshal(raw, v); err != nil {
			return fmt.Errorf("%w: JSON can't be decoded into %T: %w", ErrInvalidInput, v, tame.Error(err))
		}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: JSON can't be decoded into %T: %w", ErrInvalidInput, v, tame.Error(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: JSON can't be decoded into %T: trailing data", ErrInvalidInput, v)
	}
	return nil
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic in a JSON method: %v", ErrInvalidInput, p)
	}
}

// traits is what must be known of a type before its values are decoded; it is found once per type.
type traits struct {
	// holdsInterface: a value can hold an interface, where a number would become a float64.
	holdsInterface bool
	// roundTrips: what json.Marshal makes of a value, json.Unmarshal can read.
	roundTrips bool
	// plain: a copy of a value shares nothing with it.
	plain bool
}

var known sync.Map // reflect.Type to traits

func traitsOf(t reflect.Type) traits {
	if found, ok := known.Load(t); ok {
		return found.(traits)
	}
	found := findTraits(t, map[reflect.Type]bool{})
	known.Store(t, found)
	return found
}

func holdsInterface(t reflect.Type) bool { return traitsOf(t).holdsInterface }

// RoundTrips tells whether every value of type T that can be encoded can be decoded again, so that nobody needs to try.
// False: nobody knows.
func RoundTrips[T any]() bool { return traitsOf(reflect.TypeFor[T]()).roundTrips }

// Plain tells whether a copy of a value of type T shares nothing with it, so that it is as good as one that is decoded
// afresh.
func Plain[T any]() bool { return traitsOf(reflect.TypeFor[T]()).plain }

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	custom   = []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	}
)

// findTraits looks at a type and all that it is made of. A type that was looked at before adds nothing; seen holds true
// of those that are being looked at.
func findTraits(t reflect.Type, seen map[reflect.Type]bool) traits {
	all := traits{roundTrips: true, plain: true}
	if t == nil {
		return traits{}
	}
	if open, met := seen[t]; met {
		all.roundTrips = !open // a value that holds more of its kind may be nested deeper than json.Unmarshal reads
		return all
	}
	seen[t] = true
	defer func() { seen[t] = false }()
	switch {
	case t == timeType: // the location that it points to never changes
		return all
	case t == rawType:
		return traits{roundTrips: true}
	case isCustom(t):
		all.roundTrips = false
	}
	part := func(u reflect.Type) {
		of := findTraits(u, seen)
		all.holdsInterface = all.holdsInterface || of.holdsInterface
		all.roundTrips = all.roundTrips && of.roundTrips
		all.plain = all.plain && of.plain
	}
	switch t.Kind() {
	case reflect.Interface:
		return traits{holdsInterface: true}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if t.Kind() == reflect.Map {
			part(t.Key())
		}
		part(t.Elem())
		all.plain = false
	case reflect.Array:
		part(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous { // the rules of promotion are json's own
				all.roundTrips = false
			}
			part(f.Type)
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return traits{}
	}
	return all
}

func isCustom(t reflect.Type) bool {
	for _, c := range custom {
		if t.Implements(c) || reflect.PointerTo(t).Implements(c) {
			return true
		}
	}
	return false
}

// Cut is s cut at [MaxMessage] bytes, at the end of a character, with what is no UTF-8 replaced.
func Cut(s string) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	if len(s) <= MaxMessage {
		return s
	}
	n := MaxMessage
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

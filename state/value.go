package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sync"
	"unicode/utf8"
)

// Encode is v as JSON, the form in which payloads are stored. A panic of a MarshalJSON method becomes an error. Errors
// are of class [ErrInvalidInput].
func Encode(v any) (raw json.RawMessage, err error) {
	defer recovered(&err)
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %T can't be encoded as JSON: %w", ErrInvalidInput, v, err)
	}
	return b, nil
}

// Decode is the inverse of Encode, into the value that v points to. Numbers that land in an interface become
// json.Number, never float64, so that integers stay exact. Errors are of class [ErrInvalidInput].
func Decode(raw json.RawMessage, v any) (err error) {
	defer recovered(&err)
	if !holdsInterface(reflect.TypeOf(v)) {
		if err := json.Unmarshal(raw, v); err != nil {
			return fmt.Errorf("%w: JSON can't be decoded into %T: %w", ErrInvalidInput, v, err)
		}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: JSON can't be decoded into %T: %w", ErrInvalidInput, v, err)
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

var interfaces sync.Map // reflect.Type to bool

// holdsInterface tells whether a value of this type can hold an interface, where a number would become a float64. A type
// of its own decoding is left to that.
func holdsInterface(t reflect.Type) bool {
	if known, ok := interfaces.Load(t); ok {
		return known.(bool)
	}
	found := findInterface(t, map[reflect.Type]bool{})
	interfaces.Store(t, found)
	return found
}

func findInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findInterface(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if findInterface(t.Field(i).Type, seen) {
				return true
			}
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

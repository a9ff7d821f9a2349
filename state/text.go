package state

import (
	"bytes"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// replaced is how json.Marshal writes a byte that is no UTF-8; a real U+FFFD it writes as it is.
var replaced = []byte(`\ufffd`)

// CheckText refuses a value whose strings are not all valid UTF-8, which json.Marshal replaces without a word: two
// different requests would look the same. raw is the value as Encode made it. Errors are of class [ErrInvalidInput].
func CheckText(v any, raw []byte) error {
	if !bytes.Contains(raw, replaced) || validText(reflect.ValueOf(v), 0) {
		return nil
	}
	return fmt.Errorf("%w: a string of the %T is not valid UTF-8", ErrInvalidInput, v)
}

// deepest is where the walk through a value ends; what json.Marshal has encoded has no cycles.
const deepest = MaxDepth

func validText(v reflect.Value, depth int) bool {
	if depth > deepest {
		return true
	}
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || validText(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !validText(v.Index(i), depth+1) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !validText(it.Key(), depth+1) || !validText(it.Value(), depth+1) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && !validText(v.Field(i), depth+1) {
				return false
			}
		}
	}
	return true
}

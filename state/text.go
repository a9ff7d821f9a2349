package state

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// json.Marshal writes the escape for a byte that is no UTF-8, and a real U+FFFD as it is. The escape also stands in what is
// JSON already, as in a json.RawMessage, and in a text that spells it. encoding/json/v2 writes the character for both;
// there, what a MarshalJSON method has replaced can't be told.
const (
	replacedEscape    = `\ufffd`
	replacedCharacter = "\ufffd"
)

// CheckText refuses a value with a text that is not valid UTF-8, which json.Marshal replaces without a word: two different
// requests would look the same. raw is the value as Encode made it. Errors are of class [ErrInvalidInput].
//
// The escapes in raw are counted: when a byte was replaced, wherever that was, there are more of them than the value
// accounts for. What the walk through the value doesn't see makes it find too few, so nothing passes unseen.
func CheckText(v any, raw []byte) (err error) {
	escapes := bytes.Count(raw, []byte(replacedEscape))
	if escapes == 0 && !bytes.Contains(raw, []byte(replacedCharacter)) {
		return nil
	}
	defer recovered(&err)
	var w textWalk
	w.value(reflect.ValueOf(v), 0)
	if !w.invalid && w.escapes >= escapes {
		return nil
	}
	return fmt.Errorf("%w: a text of the %T is not valid UTF-8; give bytes as []byte, or encode them as hex or base64", ErrInvalidInput, v)
}

// deepest is where the walk ends: several levels of a value make one of JSON's, of which there are at most MaxDepth.
const deepest = 10 * MaxDepth

// textWalk goes through a value where json.Marshal goes.
type textWalk struct {
	escapes int  // how many escapes json.Marshal writes that stand for no replaced byte
	invalid bool // a text is no UTF-8
}

func (w *textWalk) value(v reflect.Value, depth int) {
	if depth > deepest || w.method(v) {
		return
	}
	depth++
	switch v.Kind() {
	case reflect.String:
		w.text(v.String())
	case reflect.Pointer, reflect.Interface:
		w.value(v.Elem(), depth)
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && holdsText(v.Type().Elem()); i++ {
			w.value(v.Index(i), depth)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			w.name(it.Key(), depth)
			w.value(it.Value(), depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				w.value(v.Field(i), depth)
			}
		}
	}
}

// holdsText is false of numbers, of which there may be many: the bytes of a []byte.
func holdsText(t reflect.Type) bool { return t.Kind() > reflect.Complex128 || isCustom(t) }

// name is a map's key. A string is written as it is there, whatever methods it has.
func (w *textWalk) name(key reflect.Value, depth int) {
	if key.Kind() == reflect.String {
		w.text(key.String())
		return
	}
	w.value(key, depth)
}

func (w *textWalk) text(text string) {
	w.invalid = w.invalid || !utf8.ValidString(text)
	w.escapes += strings.Count(text, replacedEscape)
}

// method tells whether a value is encoded by a method of its own, and looks at what that writes. Of a pointer, it is what
// it points to that has the method here.
func (w *textWalk) method(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface || !v.IsValid() || !v.CanInterface() {
		return false
	}
	if v.CanAddr() {
		v = v.Addr()
	}
	switch m := v.Interface().(type) {
	case json.Marshaler:
		w.escapes += lastingEscapes(m)
	case encoding.TextMarshaler:
		text, err := m.MarshalText()
		w.invalid = w.invalid || err != nil
		w.text(string(text))
	default:
		return false
	}
	return true
}

// lastingEscapes is how many escapes are left when a value is decoded and encoded again: its texts hold the character
// then, and what is JSON still has the escapes.
func lastingEscapes(v json.Marshaler) int {
	raw, err := Encode(v)
	if err != nil || !bytes.Contains(raw, []byte(replacedEscape)) {
		return 0
	}
	again := reflect.New(reflect.TypeOf(v))
	if Decode(raw, again.Interface()) != nil {
		return 0
	}
	if raw, err = Encode(again.Elem().Interface()); err != nil {
		return 0
	}
	return bytes.Count(raw, []byte(replacedEscape))
}

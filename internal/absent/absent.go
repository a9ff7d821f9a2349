// Package absent tells an interface with nothing behind it from one that can be called.
package absent

import "reflect"

// Is tells whether there is nothing behind an interface: no value, or a nil pointer or function.
func Is(thing any) bool {
	v := reflect.ValueOf(thing)
	return !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

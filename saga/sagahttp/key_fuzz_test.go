package sagahttp

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzIdempotencyKey: whatever comes in the field, a key that is accepted is within its bounds, and sent again in either
// form it is the same key.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"", "a", `"a"`, `"a\"b\\"`, `"a";v=1`, "a, b", " a ", "注文", "\xff", `"`, `"\`, `a"b`, "a\tb", `"a" ; x="y,z"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		key, err := IdempotencyKey(&http.Request{Header: http.Header{keyHeader: {field}}})
		if err != nil {
			if key != "" {
				t.Fatalf("%q: the key %q and an error", field, key)
			}
			return
		}
		if n := utf8.RuneCountInString(key); n < 1 || n > MaxKey || strings.TrimSpace(key) == "" || !utf8.ValidString(key) {
			t.Fatalf("%q: the key %q is out of bounds", field, key)
		}
		sent := 0
		for _, quoted := range []bool{false, true} {
			value, err := sendable(key, quoted)
			if err != nil {
				continue
			}
			sent++
			again, err := IdempotencyKey(&http.Request{Header: http.Header{keyHeader: {value}}})
			if err != nil || again != key {
				t.Fatalf("%q: the key %q, sent as %q, came as %q, %v", field, key, value, again, err)
			}
		}
		if sent == 0 {
			t.Fatalf("%q: the key %q can't be sent", field, key)
		}
	})
}

package state

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKey is the most bytes that an encoded key may have. DynamoDB's limit on a sort key is the reason.
const MaxKey = 1024

// ErrInvalidKey is the class of every error about a malformed key. The message says what is wrong with it.
var ErrInvalidKey = errors.New("invalid key")

// Key names a run: one business operation of one tenant. Keyed literals only.
type Key struct {
	_ struct{}

	// Tenant separates customers of the same operation. It may be empty.
	Tenant string
	// Operation is the saga's name. An orchestrator fills it in.
	Operation string
	// ID is the business key, such as an order number. It may not be empty, nor consist of control characters alone.
	ID string
}

// String is the encoded key, "tenant#operation#id", with '%', '#', '/' and control characters percent-escaped in each
// part, so that two different keys never meet. It doesn't check the key: see Encode.
func (k Key) String() string {
	var b strings.Builder
	b.Grow(len(k.Tenant) + len(k.Operation) + len(k.ID) + 2)
	escape(&b, k.Tenant)
	b.WriteByte('#')
	escape(&b, k.Operation)
	b.WriteByte('#')
	escape(&b, k.ID)
	return b.String()
}

// Encode checks the key and returns it encoded. Errors are of class [ErrInvalidKey].
func (k Key) Encode() (string, error) {
	if k.ID == "" {
		return "", fmt.Errorf("%w: the ID is empty", ErrInvalidKey)
	}
	if strings.IndexFunc(k.ID, func(r rune) bool { return !unicode.IsControl(r) }) < 0 {
		return "", fmt.Errorf("%w: the ID consists of control characters alone", ErrInvalidKey)
	}
	for _, p := range [...]struct{ name, value string }{{"tenant", k.Tenant}, {"operation", k.Operation}, {"ID", k.ID}} {
		if !utf8.ValidString(p.value) {
			return "", fmt.Errorf("%w: the %s is not valid UTF-8", ErrInvalidKey, p.name)
		}
	}
	s := k.String()
	if len(s) > MaxKey {
		return "", fmt.Errorf("%w: %d bytes encoded, at most %d are allowed", ErrInvalidKey, len(s), MaxKey)
	}
	return s, nil
}

// ParseKey is the inverse of [Key.Encode]: it accepts exactly what Encode returns. Errors are of class [ErrInvalidKey].
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "#")
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("%w: want tenant#operation#id, got %d parts", ErrInvalidKey, len(parts))
	}
	for i, p := range parts {
		u, err := unescape(p)
		if err != nil {
			return Key{}, err
		}
		parts[i] = u
	}
	k := Key{Tenant: parts[0], Operation: parts[1], ID: parts[2]}
	if enc, err := k.Encode(); err != nil {
		return Key{}, err
	} else if enc != s {
		return Key{}, fmt.Errorf("%w: not the canonical spelling", ErrInvalidKey)
	}
	return k, nil
}

// EscapePart percent-escapes one part of a key or of what is derived from it: '%', '#', '/' and control characters.
func EscapePart(part string) string {
	var b strings.Builder
	escape(&b, part)
	return b.String()
}

const upperHex = "0123456789ABCDEF"

func escape(b *strings.Builder, s string) {
	if !needsEscape(s) {
		b.WriteString(s)
		return
	}
	for i, r := range s {
		switch {
		case r == '%' || r == '#' || r == '/' || unicode.IsControl(r):
			for _, c := range []byte(string(r)) {
				b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
			}
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)): // a byte that is no UTF-8
			b.Write([]byte{'%', upperHex[s[i]>>4], upperHex[s[i]&15]})
		default:
			b.WriteRune(r)
		}
	}
}

func needsEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '%' || c == '#' || c == '/' {
			return true
		}
	}
	return false
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%w: cut-off escape", ErrInvalidKey)
		}
		hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("%w: malformed escape", ErrInvalidKey)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}

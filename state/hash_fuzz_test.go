package state_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// A value of the tests' own: nil, bool, string, number, list, object. It is written in many spellings.
type (
	number struct { // digits times ten to the exponent
		digits string
		exp    int
	}
	list   []any
	object []pair
	pair   struct {
		name  string
		value any
	}
)

var alphabet = []rune("ab\"\\/\b\f\n\r\t\x00\x1f\x7féß€\ud7ff\ue000\uffff😀𐀀<>&\u2028")

func randomText(r *rand.Rand) string {
	s := make([]rune, r.IntN(6))
	for i := range s {
		s[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(s)
}

func randomValue(r *rand.Rand, depth int) any {
	n := 6
	if depth == 0 {
		n = 4
	}
	switch r.IntN(n) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return randomText(r)
	case 3:
		return number{fmt.Sprint(r.Int64N(1 << (1 + r.IntN(62)))), r.IntN(60) - 30}
	case 4:
		l := make(list, r.IntN(4))
		for i := range l {
			l[i] = randomValue(r, depth-1)
		}
		return l
	}
	o, seen := object{}, map[string]bool{}
	for range r.IntN(6) {
		if name := randomText(r); !seen[name] {
			seen[name] = true
			o = append(o, pair{name, randomValue(r, depth-1)})
		}
	}
	return o
}

// write spells v at random: order of members, white space, escapes, and the shape of numbers.
func write(r *rand.Rand, b *strings.Builder, v any) {
	gap := func() { b.WriteString([]string{"", "", " ", "\n\t", "\r "}[r.IntN(5)]) }
	switch v := v.(type) {
	case nil, bool:
		enc, _ := json.Marshal(v)
		b.Write(enc)
	case string:
		writeText(r, b, v)
	case number:
		writeNumber(r, b, v)
	case list:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			gap()
			write(r, b, e)
			gap()
		}
		gap()
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, j := range r.Perm(len(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			gap()
			writeText(r, b, v[j].name)
			gap()
			b.WriteByte(':')
			gap()
			write(r, b, v[j].value)
			gap()
		}
		gap()
		b.WriteByte('}')
	}
}

func writeText(r *rand.Rand, b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case r.IntN(3) == 0 && c > 0xffff:
			fmt.Fprintf(b, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case r.IntN(3) == 0 && c <= 0xffff || c < 0x20 && c != '\n':
			fmt.Fprintf(b, `\u%04x`, c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}

func writeNumber(r *rand.Rand, b *strings.Builder, n number) {
	digits, exp := n.digits, n.exp
	if strings.Trim(digits, "0") == "" {
		b.WriteString([]string{"0", "-0", "0.000", "0e7", "-0.0E-3"}[r.IntN(5)])
		return
	}
	if k := r.IntN(5); k > 0 {
		digits, exp = digits+strings.Repeat("0", k), exp-k
	}
	if r.IntN(2) == 0 { // the point somewhere within, or before
		at := r.IntN(len(digits) + 1)
		exp += len(digits) - at
		whole := digits[:at]
		if whole == "" {
			zeros := r.IntN(3)
			whole, digits, exp, at = "0", strings.Repeat("0", zeros)+digits, exp+zeros, 0
		}
		if fraction := digits[at:]; fraction != "" {
			whole += "." + fraction
		}
		digits = whole
	}
	b.WriteString(digits)
	if exp != 0 || r.IntN(2) == 0 {
		fmt.Fprintf(b, []string{"e%d", "E%+d", "e%04d"}[r.IntN(3)], exp)
	}
}

func spell(r *rand.Rand, depth int) string {
	var b strings.Builder
	write(r, &b, randomValue(r, depth))
	return b.String()
}

// The same value in any order and spelling has the same hash; a value that differs in one place has another.
func FuzzPayloadHashSpelling(f *testing.F) {
	for i := range uint64(50) {
		f.Add(i)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		v := randomValue(r, 5)
		var first string
		for i := range 4 {
			var b strings.Builder
			write(r, &b, v)
			require.True(t, json.Valid([]byte(b.String())), "the test wrote no JSON: %s", b.String())
			h := hash(t, b.String())
			if i == 0 {
				first = h
			}
			require.Equal(t, first, h, "%s", b.String())
		}
		var b strings.Builder
		write(r, &b, list{v, mutate(r, v)})
		var parts []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(b.String()), &parts))
		require.NotEqual(t, hash(t, string(parts[0])), hash(t, string(parts[1])), "%s", b.String())
	})
}

// mutate is v changed in one place.
func mutate(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case string:
		return v + string(alphabet[r.IntN(len(alphabet))])
	case number:
		if strings.Trim(v.digits, "0") == "" {
			return number{"1", 0}
		}
		return []number{{v.digits, v.exp + 1}, {v.digits + "1", v.exp - 1}, {"1" + v.digits, v.exp}}[r.IntN(3)]
	case list:
		if len(v) == 0 {
			return list{nil}
		}
		c, i := slices.Clone(v), r.IntN(len(v))
		c[i] = mutate(r, c[i])
		return c
	case object:
		c := slices.Clone(v)
		if len(c) == 0 || r.IntN(3) == 0 {
			return append(c, pair{"another name", nil})
		}
		i := r.IntN(len(c))
		if r.IntN(2) == 0 {
			return slices.Delete(c, i, i+1)
		}
		c[i].value = mutate(r, c[i].value)
		return c
	}
	return "was null"
}

// Any bytes: what is accepted is what the standard library decodes without loss, and two texts have one canonical form
// exactly if they decode to the same value.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, `{"b":[1.0,2e3,-0],"a":"\u00e9"}`, `[1e999999999]`, `{"a":{"c":1,"b":2}}`, `"\ud83d\ude00"`, `"\ud800"`, `{"a":1,"a":2}`, ` 1 `, `[[[[]]]]`,
	} {
		f.Add([]byte(s), []byte(`{"a":1.0}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ca, errA := state.Canonical(a)
		va, ok := reference(a)
		require.Equal(t, ok, errA == nil, "%q: %v", a, errA)
		if errA != nil {
			require.ErrorIs(t, errA, state.ErrInvalidInput)
			return
		}
		again, err := state.Canonical(ca)
		require.NoError(t, err)
		require.Equal(t, string(ca), string(again), "the canonical form of a canonical form is itself")
		if vb, ok := reference(b); ok {
			cb, err := state.Canonical(b)
			require.NoError(t, err)
			require.Equal(t, reflect.DeepEqual(va, vb), bytes.Equal(ca, cb), "%q %q", ca, cb)
		}
	})
}

// reference decodes text by the standard library alone, numbers by value; false for what Canonical must refuse.
func reference(text []byte) (any, bool) {
	if !utf8.Valid(text) || !json.Valid(text) || loneSurrogate(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, ok := referenceValue(d, 0)
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return v, ok
}

func referenceValue(d *json.Decoder, depth int) (any, bool) {
	tok, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch tok := tok.(type) {
	case json.Number:
		return referenceNumber(string(tok))
	case json.Delim:
		ok := depth < state.MaxDepth
		items, members := []any{}, map[string]any{}
		for d.More() {
			var name any
			if tok == '{' {
				name, _ = d.Token()
			}
			v, fine := referenceValue(d, depth+1)
			ok = ok && fine
			if tok == '[' {
				items = append(items, v)
				continue
			}
			_, twice := members[name.(string)]
			ok = ok && !twice
			members[name.(string)] = v
		}
		_, _ = d.Token()
		if tok == '[' {
			return items, ok
		}
		return members, ok
	}
	return tok, true
}

type referenceDecimal struct {
	digits string
	exp    string
}

func referenceNumber(s string) (any, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	exp, ok := new(big.Int).SetString(exponent, 10)
	if exponent == "" {
		exp, ok = new(big.Int), true
	}
	if !ok || new(big.Int).Abs(exp).Cmp(big.NewInt(1e18)) >= 0 {
		return nil, false
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	n, _ := new(big.Int).SetString(whole+fraction, 10)
	if n.Sign() == 0 {
		return referenceDecimal{"0", "0"}, true
	}
	exp.Sub(exp, big.NewInt(int64(len(fraction))))
	digits := n.String()
	trimmed := strings.TrimRight(digits, "0")
	exp.Add(exp, big.NewInt(int64(len(digits)-len(trimmed))))
	return referenceDecimal{trimmed, exp.String()}, true
}

// loneSurrogate: the standard library decodes a lone surrogate to U+FFFD, so such an escape stands out when its length
// is compared with a decoding of the pairs.
func loneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		var s string
		if text[i+1] == 'u' {
			unit := strings.ToLower(string(text[i+2 : i+6]))
			if unit >= "d800" && unit <= "dfff" {
				end := min(i+12, len(text))
				if end == i+12 && text[i+6] == '\\' && text[i+7] == 'u' && json.Unmarshal([]byte(`"`+string(text[i:end])+`"`), &s) == nil && utf8.RuneCountInString(s) == 1 {
					i += 11
					continue
				}
				return true
			}
			i += 5
			continue
		}
		i++
	}
	return false
}

func TestReferenceTellsSurrogates(t *testing.T) {
	t.Parallel()
	for text, lone := range map[string]bool{`"\ud83d\ude00"`: false, `"\ud83d"`: true, `"\\ud83d"`: false, `"\ude00\ud83d"`: true, `"\ud83d\u0041"`: true, `"\\\ud83dx"`: true} {
		assert.Equal(t, lone, loneSurrogate([]byte(text)), text)
	}
}

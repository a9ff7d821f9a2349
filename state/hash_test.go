package state_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

func canonical(t testing.TB, text string) string {
	t.Helper()
	out, err := state.Canonical(json.RawMessage(text))
	require.NoError(t, err, "%.200s", text)
	return string(out)
}

func hash(t testing.TB, text string) string {
	t.Helper()
	h, err := state.PayloadHash(json.RawMessage(text))
	require.NoError(t, err, "%.200s", text)
	return h
}

// The vectors of RFC 8785, sections 3.2.2 to 3.2.4; its number 333333333.33333329 is not a double and keeps its digits.
func TestCanonicalFollowsRFC8785(t *testing.T) {
	t.Parallel()
	got := canonical(t, `{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`)
	assert.Equal(t, `{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],`+
		`"string":"€$\u000f\nA'B\"\\\\\"/"}`, got)

	got = canonical(t, `{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`)
	assert.Equal(t, `{"\r":"Carriage Return","1":"One","`+"\u0080"+`":"Control","ö":"Latin Small Letter O With Diaeresis",`+
		`"€":"Euro Sign","😀":"Emoji: Grinning Face","`+"\ufb33"+`":"Hebrew Letter Dalet With Dagesh"}`, got)
}

// Appendix B of RFC 8785: doubles in their shortest spelling come out as ECMAScript writes them.
func TestCanonicalNumbersOfRFC8785(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		shortest := strconv.FormatFloat(math.Float64frombits(bits), 'e', -1, 64)
		assert.Equal(t, want, canonical(t, shortest), shortest)
		assert.Equal(t, want, canonical(t, want))
	}
}

func TestNumbersAreComparedByExactValue(t *testing.T) {
	t.Parallel()
	same := [][]string{
		{"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "0.01e2", "1.000000000000000000000000000000", "100e-000000000000000000002"},
		{"0", "-0", "0.0", "-0.000", "0e5", "-0E-5", "0e999999999", "0.000e-999999999"},
		{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
		{"9007199254740993", "9.007199254740993e15", "90071992547409930e-1"},
		{"12345678901234567890123456789012345678", "1.2345678901234567890123456789012345678e37"},
		{"100", "1e2", "10.0e1", "0.001e5"},
		{"1000000000000000000000", "1e21", "10e20"},
		{"123456789012345678901000", "123456789012345678901e3"},
		{"0.0000001", "1e-7", "10e-8"},
		{"0.000001", "1e-6"},
		{"0.00000123", "123e-8", "1.23e-6"},
		{"1e999999999", "10e999999998", "0.1e1000000000"},
		{"-1.5e-999999999", "-15e-1000000000"},
	}
	seen := map[string]string{}
	for _, spellings := range same {
		want := hash(t, spellings[0])
		for _, s := range spellings {
			assert.Equal(t, want, hash(t, s), "%s is %s", s, spellings[0])
		}
		assert.Empty(t, seen[want], "%s is not %s", spellings[0], seen[want])
		seen[want] = spellings[0]
	}
}

func TestHostileExponentsCostNothing(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "1e+999999999999999999", canonical(t, "1e999999999999999999"))
	assert.Equal(t, "-1.2e-999999999999999998", canonical(t, "-12e-999999999999999999"))
	for _, s := range []string{"1e1000000000000000000", "1e-1000000000000000000", "0e" + strings.Repeat("9", 1000)} {
		_, err := state.PayloadHash(json.RawMessage(s))
		assert.ErrorIs(t, err, state.ErrInvalidInput, "%.40s", s)
	}
}

func TestDifferentValuesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `"1"`, `""`, `"null"`, `[]`, `{}`, `[null]`, `[[]]`, `[{}]`, `{"a":null}`, `{"a":{}}`,
		`[1,2]`, `[2,1]`, `[12]`, `["1","2"]`, `["1,2"]`, `{"a":1,"b":2}`, `{"a":2,"b":1}`, `{"a":{"b":2}}`, `{"a":{"b":"2"}}`, `{"":0}`,
		`9007199254740992`, `9007199254740993`, `1e400`, `1e401`, `0.1`, `0.10000000000000001`, `"\u0000"`, `"\\u0000"`, `"é"`, `"e\u0301"`,
	} {
		h := hash(t, s)
		assert.Empty(t, seen[h], "%s and %s", s, seen[h])
		seen[h] = s
	}
}

func TestStringsAreComparedByContent(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{`"a"`, `"\u0061"`},
		{`"<>&\u2028"`, `"\u003c\u003E\u0026` + "\u2028" + `"`},
		{`"/\/"`, `"\/\u002f"`},
		{`"\b\f\n\r\t"`, `"\u0008\u000c\u000A\u000d\u0009"`},
		{`"😀"`, `"\ud83d\uDE00"`},
		{`"\u001F\u007f"`, `"\u001f` + "\u007f" + `"`},
		{`{"\u0061":1,"b":2}`, `{"b":2,"a":1}`},
	} {
		assert.Equal(t, canonical(t, same[0]), canonical(t, same[1]))
	}
}

func TestMembersAreOrderedAtEveryDepth(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `{"a":[{"x":{"p":2,"q":1},"y":0},{}],"b":{"c":1,"d":{"e":[],"f":2}},"c":3}`,
		canonical(t, ` { "c" : 3, "b":{"d":{"f":2,"e":[ ]},"c":1},"a":[{"y":0,"x":{"q":1,"p":2}},{ }] } `))
	assert.Equal(t, `{"a":{"z":{"a":1,"b":2}},"b":0}`, canonical(t, `{"a":{"z":{"b":2,"a":1}},"b":0}`), "in order itself, out of order within")
	// Ties between a name and its prefix, escapes in the names, and both sides of the surrogates.
	assert.Equal(t, `{"":0,"\u0001":1,"\t":2,"\"":3,"\"a":4,"A":5,"\\":6,"\\\\":7,"a":8,"aa":9,"퟿":10,"𐀀":11,"𐀁":12,"`+"\ue000"+`":13,"`+"\uffff"+`":14}`,
		canonical(t, `{"\uffff":14,"\ue000":13,"\ud800\udc01":12,"\ud800\udc00":11,"\ud7ff":10,"aa":9,"a":8,"\\\\":7,"\u005c":6,"A":5,"\u0022a":4,"\"":3,"\t":2,"\u0001":1,"":0}`))
}

func TestPayloadHashRefuses(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for name, text := range map[string]string{
		"nothing": ``, "white space": " \n", "two values": `1 2`, "trailing comma": `[1,]`, "trailing text": `{} x`, "trailing brace": `{}}`,
		"leading zero": `01`, "plus": `+1`, "no digits": `-`, "no fraction": `1.`, "no whole": `.5`, "no exponent": `1e`, "no exponent digits": `1e+`,
		"hex": `0x10`, "NaN": `NaN`, "Infinity": `-Infinity`, "bad literal": `nul`, "long literal": `nulls`, "capital": `True`, "single quotes": `'a'`,
		"unfinished string": `"` + secret, "unfinished escape": `"` + secret + `\`, "unfinished array": `[1`, "unfinished object": `{"` + secret + `"`,
		"no colon": `{"` + secret + `" 1}`, "no name": `{` + secret + `:1}`, "no value": `{"` + secret + `":}`, "object comma": `{"a":1,}`, "no comma": `[1 2]`,
		"control character": "\"" + secret + "\n\"", "NUL": "\"\x00\"", "bad escape": `"\x41"`, "bad unicode escape": `"\u12g4"`, "short unicode escape": `"\u12"`,
		"invalid UTF-8": "\"" + secret + "\xff\"", "overlong": "\"\xc0\xaf\"", "surrogate in UTF-8": "\"\xed\xa0\x80\"", "cut UTF-8": "\"\xe2\x82\"", "invalid UTF-8 in a name": "{\"\xff\":1}",
		"byte order mark": "\ufeff{}", "no-break space": "\u00a01", "vertical tab": "\v1",
		"lone high surrogate": `"\ud800"`, "lone low surrogate": `"\udc00"`, "swapped surrogates": `"\udc00\ud800"`, "high twice": `"\ud800\ud800"`, "high and text": `"\ud800dc00x"`,
		"duplicate": `{"` + secret + `":1,"` + secret + `":1}`, "duplicate spelled otherwise": `{"a":1,"\u0061":2}`, "duplicate not adjacent": `{"b":1,"c":2,"b":3}`,
		"duplicate far apart": `{"b":1,"c":2,"a":3,"b":4}`, "duplicate within": `[{"x":{"a":1,"b":2,"a":3}}]`, "duplicate empty": `{"":1,"":2}`,
		"duplicate emoji": `{"😀":1,"z":0,"\ud83d\ude00":2}`,
		"too deep":        strings.Repeat("[", state.MaxDepth+1) + strings.Repeat("]", state.MaxDepth+1), "much too deep": strings.Repeat(`{"a":`, 1_000_000),
	} {
		_, err := state.PayloadHash(json.RawMessage(text))
		if assert.ErrorIs(t, err, state.ErrInvalidInput, name) {
			assert.NotContains(t, err.Error(), secret, name)
			assert.Less(t, len(err.Error()), 200, name)
		}
		_, err = state.Canonical(json.RawMessage(text))
		assert.ErrorIs(t, err, state.ErrInvalidInput, name)
	}
	_, err := state.PayloadHash(nil)
	assert.ErrorIs(t, err, state.ErrInvalidInput)
}

func TestDepthUpToTheLimitIsAccepted(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("[", state.MaxDepth) + strings.Repeat("]", state.MaxDepth)
	assert.Equal(t, text, canonical(t, text))
	// Out of order at every level: the work must stay linear, and the order right.
	text = strings.Repeat(`{"b":0,"a":`, state.MaxDepth) + "1" + strings.Repeat("}", state.MaxDepth)
	want := strings.Repeat(`{"a":`, state.MaxDepth) + "1" + strings.Repeat(`,"b":0}`, state.MaxDepth)
	assert.Equal(t, want, canonical(t, text))
}

// The hash is stored: it must never change. These vectors, made by another program, stand for HashVersion 1.
func TestPayloadHashVectors(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, state.HashVersion)
	for text, want := range map[string]string{
		`{}`:                               "1:RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o",
		`null`:                             "1:dCNOmK_nSY-12vHzasLXiswzlGT5UHA7jAGYkvmCuQs",
		`{"order_no":"A-1","amount":1200}`: "1:CSr7QFgm_7woI1HWSN4QczbB1lx5Av9mHEcIuLH6Gm8",
		`[1.5,-0,1e21,"\u00e9\n"]`:         "1:1uhGOR0G8I0M9qlYNNpAsbmXzBfdPrF9q7llr5lr9AI",
	} {
		assert.Equal(t, want, hash(t, text), text)
		assert.Len(t, hash(t, text), 45)
	}
}

func TestPayloadHashDoesNotTouchItsInput(t *testing.T) {
	t.Parallel()
	text := `{"b":[1.50,{"d":1,"c":2}],"a":"\u0061"}`
	raw := json.RawMessage(text)
	h := hash(t, string(raw))
	out, err := state.Canonical(raw)
	require.NoError(t, err)
	assert.Equal(t, text, string(raw))
	before := string(out)
	for range 100 { // other calls must not write into what was returned
		_, _ = state.Canonical(json.RawMessage(`{"z":"zzzzzzzzzzzzzzzzzzzzzzzzzzz","y":2}`))
	}
	assert.Equal(t, before, string(out))
	assert.Equal(t, h, hash(t, text))
}

func TestPayloadHashConcurrently(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	for i := range 64 {
		text := spell(rand.New(rand.NewPCG(uint64(i), 1)), 4)
		want[text] = hash(t, text)
	}
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for text, h := range want {
				got, err := state.PayloadHash(json.RawMessage(text))
				assert.NoError(t, err)
				assert.Equal(t, h, got)
			}
		}()
	}
	for range 8 {
		<-done
	}
}

func BenchmarkPayloadHash(b *testing.B) {
	for name, text := range map[string]string{
		"sorted100":   `{"amount":1200,"currency":"EUR","customer":"c-7781","items":["sku-1","sku-2"],"order_no":"A-000001"}`,
		"unsorted100": `{"order_no":"A-000001","amount":1200,"currency":"EUR","customer":"c-7781","items":["sku-1","sku-2"]}`,
		"large30k":    `{"b":[` + strings.TrimSuffix(strings.Repeat(`{"name":"widget","qty":12,"price":10.50,"at":"2026-01-02"},`, 520), ",") + `],"a":1}`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := json.RawMessage(text)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := state.PayloadHash(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

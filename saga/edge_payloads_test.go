package saga_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// anything is an input and an output of every shape that JSON and Go don't agree on easily.
type anything struct {
	Int   int64
	Uint  uint64
	Any   any
	Float float64
	Time  time.Time
	Map   map[string]map[string]int
	Slice [][]string
	Raw   json.RawMessage
	Ptr   *int64
	Bytes []byte
	Text  string
	Keys  map[string]any
}

func number(n string) any { return json.Number(n) }

func ptr[T any](v T) *T { return &v }

var tokyo = time.FixedZone("JST", 9*60*60)

// The values are what a step sees of them, on the first run and on every other: what goes in comes out, but for what is
// said in the second.
var payloads = map[string]struct{ in, out anything }{
	"nothing":                   {anything{}, anything{}},
	"the largest int":           {anything{Int: math.MaxInt64, Any: json.Number("9223372036854775807")}, anything{Int: math.MaxInt64, Any: number("9223372036854775807")}},
	"the smallest int":          {anything{Int: math.MinInt64, Any: int64(math.MinInt64)}, anything{Int: math.MinInt64, Any: number("-9223372036854775808")}},
	"the largest uint":          {anything{Uint: math.MaxUint64, Any: uint64(math.MaxUint64)}, anything{Uint: math.MaxUint64, Any: number("18446744073709551615")}},
	"above the doubles":         {anything{Int: 1<<53 + 1, Any: int64(1<<53 + 1)}, anything{Int: 1<<53 + 1, Any: number("9007199254740993")}},
	"nested ints in an any":     {anything{Any: []any{map[string]any{"n": int64(math.MaxInt64)}}}, anything{Any: []any{map[string]any{"n": number("9223372036854775807")}}}},
	"a float":                   {anything{Float: 0.1, Any: 1e300}, anything{Float: 0.1, Any: number("1e+300")}},
	"nanoseconds":               {anything{Time: time.Date(2026, 2, 3, 4, 5, 6, 7, tokyo)}, anything{Time: time.Date(2026, 2, 3, 4, 5, 6, 7, tokyo)}},
	"nil in maps and slices":    {anything{Map: map[string]map[string]int{"a": nil, "b": {}}, Slice: [][]string{nil, {}, {"x"}}}, anything{Map: map[string]map[string]int{"a": nil, "b": {}}, Slice: [][]string{nil, {}, {"x"}}}},
	"nil in an any":             {anything{Keys: map[string]any{"a": nil, "b": []any{nil}, "c": map[string]any(nil)}}, anything{Keys: map[string]any{"a": nil, "b": []any{nil}, "c": nil}}},
	"raw JSON":                  {anything{Raw: json.RawMessage(`{"b":1.0,"a":[ 1e2,null ],"c":9223372036854775808}`)}, anything{Raw: json.RawMessage(`{"b":1.0,"a":[1e2,null],"c":9223372036854775808}`)}},
	"a pointer":                 {anything{Ptr: ptr[int64](math.MaxInt64)}, anything{Ptr: ptr[int64](math.MaxInt64)}},
	"bytes":                     {anything{Bytes: []byte{0, 255, 10}}, anything{Bytes: []byte{0, 255, 10}}},
	"unicode":                   {anything{Text: "続き \u2028<&>\u0000\U0001F600", Keys: map[string]any{"鍵\n": "値"}}, anything{Text: "続き \u2028<&>\u0000\U0001F600", Keys: map[string]any{"鍵\n": "値"}}},
	"300 KB":                    {anything{Text: strings.Repeat("続き", 50_000)}, anything{Text: strings.Repeat("続き", 50_000)}},
	"300 KB of bytes and slots": {anything{Bytes: make([]byte, 200_000), Slice: make([][]string, 10_000)}, anything{Bytes: make([]byte, 200_000), Slice: make([][]string, 10_000)}},
}

// sameTimes puts the zones of equal times aside: JSON keeps the offset, not the zone's name.
func sameTimes(v anything) anything {
	v.Time = v.Time.UTC()
	if v.Raw == nil {
		v.Raw = json.RawMessage("null")
	}
	return v
}

// Inputs, outputs, results and message bodies of every shape, through an interruption, by two processes.
func TestPayloadsOfEveryShape(t *testing.T) {
	for name, c := range payloads {
		t.Run(name, func(t *testing.T) {
			eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
				store := open()
				stop := true
				of := func() *saga.Definition[anything, anything] {
					seen := func(v anything) { require.Equal(t, sameTimes(c.out), sameTimes(v)) }
					echo := steps.New("echo", func(_ context.Context, r *steps.Run[anything]) (anything, error) {
						seen(r.Input)
						return c.in, nil
					})
					pass := steps.New("pass", func(_ context.Context, r *steps.Run[anything]) (anything, error) {
						seen(r.Input)
						seen(echo.Output(r))
						r.Emit(outbox.Message{Topic: "t", Body: c.in})
						if stop {
							return anything{}, errBusy
						}
						return echo.Output(r), nil
					}).Retry(once)
					return saga.Define("shapes", func(_ context.Context, r *steps.Run[anything]) (anything, error) {
						seen(pass.Output(r))
						return pass.Output(r), nil
					}, echo, pass)
				}
				_, err := newProcess(t, world, store, of()).o.Run(t.Context(), theKey, c.in)
				sagaError(t, err, saga.ErrInterrupted)
				stop = false
				for range 2 {
					out, err := newProcess(t, world, store, of()).o.Run(t.Context(), theKey, c.in)
					require.NoError(t, err)
					require.Equal(t, sameTimes(c.out), sameTimes(out))
				}
				rec := recordOf(t, store, theKey, "shapes")
				require.Len(t, rec.Outbox.Messages, 1)
				var body anything
				require.NoError(t, state.Decode(rec.Outbox.Messages[0].Bytes(), &body))
				require.Equal(t, sameTimes(c.out), sameTimes(body))
			})
		})
	}
}

// Two inputs are the same if and only if they are the same JSON value, numbers by their exact value.
func TestWhatTheSameInputIs(t *testing.T) {
	raw := func(s string) any { return json.RawMessage(s) }
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		d := func() *saga.Definition[any, steps.None] {
			return saga.Define("any", saga.NoResult[any], steps.Do("s", func(context.Context, *steps.Run[any]) error { return nil }))
		}
		for name, c := range map[string]struct {
			first  any
			same   []any
			others []any
		}{
			"two to the 53":  {raw(`9007199254740992`), []any{int64(1 << 53), raw(`9007199254740992.0`), raw(`9.007199254740992e15`)}, []any{raw(`9007199254740993`), raw(`9007199254740991`), raw(`"9007199254740992"`)}},
			"the last int":   {int64(math.MaxInt64), []any{raw(`9223372036854775807.000`)}, []any{uint64(math.MaxInt64 + 1), int64(math.MaxInt64 - 1), raw(`9.223372036854775807e19`)}},
			"the order":      {raw(`{"a":1,"b":[2,{}]}`), []any{map[string]any{"b": []any{2.0, map[string]any{}}, "a": uint8(1)}, raw(" {\n\"b\" : [2.00,{ }], \"a\" :10e-1}")}, []any{raw(`{"a":1,"b":[{},2]}`), raw(`{"a":1}`)}},
			"nothing":        {nil, []any{raw(`null`), []string(nil)}, []any{[]string{}, raw(`{}`), 0, "", false}},
			"the spelling":   {raw(`"\u00e9\/"`), []any{"é/"}, []any{"e\u0301/"}},
			"fractions":      {raw(`0.1`), []any{0.1, raw(`1e-1`)}, []any{raw(`0.1000000000000000055511151231257827`)}},
			"negative zero":  {raw(`-0`), []any{0, raw(`0.0`)}, []any{raw(`"0"`)}},
			"unicode in key": {map[string]int{"鍵": 1}, []any{raw(`{"\u9375":1}`)}, []any{map[string]int{"鍵 ": 1}}},
		} {
			key := saga.Key{Tenant: "店", ID: name + " 注文#1/2%\u00a0"}
			_, err := newProcess(t, world, store, d()).o.Run(t.Context(), key, c.first)
			require.NoError(t, err, name)
			for _, in := range c.same {
				_, err := newProcess(t, world, store, d()).o.Run(t.Context(), key, in)
				require.NoError(t, err, "%s: %s", name, in)
			}
			for _, in := range c.others {
				_, err := newProcess(t, world, store, d()).o.Run(t.Context(), key, in)
				sagaError(t, err, saga.ErrPayloadMismatch)
			}
		}
		for _, in := range []any{raw(`{"a":1,"a":1}`), raw(`{`), raw(`1 2`), make(chan int), math.Inf(1), func() {}, raw(`"\ud800"`), "\xff"} {
			_, err := newProcess(t, world, store, d()).o.Run(t.Context(), saga.Key{ID: "refused"}, in)
			sagaError(t, err, saga.ErrInvalidInput)
			require.NotContains(t, err.Error(), `"a":1`)
		}
		_, err := store.Get(t.Context(), "#any#refused")
		require.ErrorIs(t, err, state.ErrNotFound)
	})
}

// secret gives away what no field of it shows.
type secret struct{ text string }

func (s secret) MarshalText() ([]byte, error)     { return []byte(s.text), nil }
func (s *secret) UnmarshalText(text []byte) error { s.text = string(text); return nil }

// Bytes that are no text would be replaced without a word, and two inputs look the same; wherever they are, they are refused.
func TestAnInputThatIsNoTextIsRefused(t *testing.T) {
	deep := func(v any) any {
		for range 600 {
			v = []any{v}
		}
		return v
	}
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		d := saga.Define("any", saga.NoResult[any], steps.Do("s", func(context.Context, *steps.Run[any]) error { return nil }))
		o := newProcess(t, world, store, d).o
		for name, of := range map[string]func(string) any{
			"a text method": func(s string) any { return secret{s} },
			"deep":          func(s string) any { return deep(s) },
		} {
			key := saga.Key{ID: name}
			_, err := o.Run(t.Context(), key, of("\xff"))
			sagaError(t, err, saga.ErrInvalidInput)
			_, err = o.Run(t.Context(), key, of("\ufffd"))
			require.NoError(t, err, name)
			_, err = o.Run(t.Context(), key, of("\xff"))
			sagaError(t, err, saga.ErrInvalidInput)
		}
	})
}

// The same holds of what a fingerprint picks, where a digest that is made a string is no text.
func TestAFingerprintThatIsNoTextIsRefused(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		d := chain{p: new(participant)}.of(1).Fingerprint(func(in order) any {
			sum := sha256.Sum256([]byte(in.No))
			return string(sum[:])
		})
		_, err := newProcess(t, world, store, d).o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInvalidInput)
		_, err = store.Get(t.Context(), "t#chain#1")
		require.ErrorIs(t, err, state.ErrNotFound)

		d = chain{p: new(participant)}.of(1).Fingerprint(func(in order) any {
			sum := sha256.Sum256([]byte(in.No))
			return sum[:]
		})
		o := newProcess(t, world, store, d).o
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		other := theOrder
		other.No += "!"
		_, err = o.Run(t.Context(), theKey, other)
		sagaError(t, err, saga.ErrPayloadMismatch)
	})
}

// Keys of any text stay apart, in the store and in what is derived from them.
func TestKeysOfAnyText(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		store := open()
		derived := map[string]saga.Key{}
		d := func() *saga.Definition[int, string] {
			return saga.Once("op", func(_ context.Context, r *steps.Run[int]) (string, error) { return r.IdempotencyKey(), nil })
		}
		keys := []saga.Key{
			{ID: "a"}, {Tenant: "a", ID: "a"}, {Tenant: "a#op", ID: "a"}, {ID: "a#op#a"}, {ID: "a/op"}, {ID: "a/op/compensate"}, {ID: "a%2Fop"},
			{Tenant: "テナント", ID: "注文-1"}, {Tenant: "テナント", ID: "注文-１"}, {ID: "é"}, {ID: "e\u0301"}, {ID: "\U0001F600"}, {ID: "A"}, {ID: " a"}, {ID: "a "},
			{ID: "a\x00"}, {ID: "a\n"}, {ID: "\u0085a"}, {ID: strings.Repeat("鍵", 339)}, {Tenant: strings.Repeat("t", 1000), ID: "i"}, {ID: "..."}, {ID: `a"b'c;--`},
		}
		for i, key := range keys {
			out, err := newProcess(t, world, store, d()).o.Run(t.Context(), key, i)
			require.NoError(t, err, "%q", key.ID)
			require.NotContains(t, derived, out, "%q and %q", key, derived[out])
			derived[out] = key
			again, err := newProcess(t, world, store, d()).o.Resume(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, out, again)
		}
		for _, key := range []saga.Key{{}, {Tenant: "t"}, {ID: "\n\x00"}, {ID: "\xff"}, {Tenant: "\xff", ID: "a"}, {ID: strings.Repeat("a", 1025)},
			{ID: strings.Repeat("%", 342)}, {Operation: "another", ID: "a"}} {
			_, err := newProcess(t, world, store, d()).o.Run(t.Context(), key, 1)
			sagaError(t, err, saga.ErrInvalidKey)
		}
		_, err := newProcess(t, world, store, d()).o.Run(t.Context(), saga.Key{Operation: "op", ID: "a"}, 0)
		require.NoError(t, err, "its own operation may be named")
	})
}

// A step gets its input decoded afresh, so that none sees what another has done to it, whatever its type.
func TestAStepCanNotChangeWhatAnotherSees(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, world *clock.Fake, open func() state.Store) {
		spoil := func(v *anything) {
			v.Int, v.Text = 0, "spoilt"
			v.Slice[0][0], v.Map["a"]["n"], v.Raw[0], *v.Ptr, v.Bytes[0] = "spoilt", 0, 'x', 0, 0
			v.Keys["k"].(map[string]any)["x"] = "spoilt"
		}
		whole := func() anything {
			return anything{Int: 7, Text: "whole", Slice: [][]string{{"whole"}}, Map: map[string]map[string]int{"a": {"n": 7}}, Raw: json.RawMessage(`"whole"`),
				Ptr: ptr[int64](7), Bytes: []byte{7}, Keys: map[string]any{"k": map[string]any{"x": "whole"}}}
		}
		sees := func(v *anything) { require.Equal(t, whole(), *v); spoil(v) }
		a := steps.New("a", func(_ context.Context, r *steps.Run[anything]) (anything, error) {
			sees(&r.Input)
			out := whole()
			return out, nil
		}).Compensate(func(_ context.Context, r *steps.Run[anything], did steps.Outcome[anything]) error {
			sees(&r.Input)
			sees(&did.Output)
			return nil
		})
		b := steps.Do("b", func(_ context.Context, r *steps.Run[anything]) error {
			sees(&r.Input)
			for range 2 {
				out := a.Output(r)
				sees(&out)
			}
			if r.Attempt() == 1 {
				return errBusy
			}
			return steps.Permanent(errRefuse)
		}).When(func(r *steps.Run[anything]) bool {
			sees(&r.Input)
			out := a.Output(r)
			sees(&out)
			return true
		})
		in := whole()
		d := saga.Define("spoil", saga.NoResult[anything], a, b)
		o := newProcess(t, world, open(), d).o
		_, err := o.Run(t.Context(), theKey, in)
		sagaError(t, err, saga.ErrFailed)
		require.Equal(t, whole(), in, "nor the caller's own")
	})
}

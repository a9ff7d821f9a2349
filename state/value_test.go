package state_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("s3cret") }
func (*panics) UnmarshalJSON([]byte) error  { panic("s3cret") }

type loose struct {
	Any  any
	List []any
	Map  map[string]any
	Ptr  *loose
}

func TestNumbersStayExact(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"Any":9223372036854775807,"List":[9007199254740993],"Map":{"a":12345678901234567890123456789012345678},"Ptr":{"Any":1.10}}`)
	var v loose
	require.NoError(t, state.Decode(raw, &v))
	assert.Equal(t, json.Number("9223372036854775807"), v.Any)
	assert.Equal(t, json.Number("9007199254740993"), v.List[0])
	assert.Equal(t, json.Number("12345678901234567890123456789012345678"), v.Map["a"])
	assert.Equal(t, json.Number("1.10"), v.Ptr.Any)
	again, err := state.Encode(v)
	require.NoError(t, err)
	assert.Contains(t, string(again), "12345678901234567890123456789012345678")

	var whole any
	require.NoError(t, state.Decode(json.RawMessage(`9223372036854775807`), &whole))
	assert.Equal(t, json.Number("9223372036854775807"), whole)
	var n struct{ N int64 }
	require.NoError(t, state.Decode(json.RawMessage(`{"N":9223372036854775807}`), &n))
	assert.EqualValues(t, math.MaxInt64, n.N)
}

func TestEncodeAndDecodeRefuse(t *testing.T) {
	t.Parallel()
	for _, v := range []any{make(chan int), func() {}, math.NaN(), math.Inf(1), map[string]any{"a": make(chan int)}, panics{}} {
		_, err := state.Encode(v)
		assert.ErrorIs(t, err, state.ErrInvalidInput, "%T", v)
	}
	var n int
	var a any
	for _, raw := range []string{``, `{`, `1 2`, `"x" y`} {
		assert.ErrorIs(t, state.Decode(json.RawMessage(raw), &n), state.ErrInvalidInput, raw)
		assert.ErrorIs(t, state.Decode(json.RawMessage(raw), &a), state.ErrInvalidInput, raw)
	}
	assert.ErrorIs(t, state.Decode(json.RawMessage(`300`), new(int8)), state.ErrInvalidInput)
	assert.ErrorIs(t, state.Decode(json.RawMessage(`{}`), new(panics)), state.ErrInvalidInput)
	assert.ErrorIs(t, state.Decode(json.RawMessage(`{}`), nil), state.ErrInvalidInput)
	assert.ErrorIs(t, state.Decode(json.RawMessage(`{}`), 3), state.ErrInvalidInput)
}

func TestCut(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "short", state.Cut("short"))
	assert.Equal(t, strings.Repeat("x", state.MaxMessage), state.Cut(strings.Repeat("x", state.MaxMessage)))
	assert.Equal(t, strings.Repeat("x", state.MaxMessage), state.Cut(strings.Repeat("x", state.MaxMessage+1)))
	for pad := range 4 {
		got := state.Cut(strings.Repeat("x", pad) + strings.Repeat("😀", 100))
		assert.True(t, utf8.ValidString(got))
		assert.LessOrEqual(t, len(got), state.MaxMessage)
		assert.Greater(t, len(got), state.MaxMessage-utf8.UTFMax)
	}
	assert.Equal(t, "a\ufffdb", state.Cut("a\xffb"))
}

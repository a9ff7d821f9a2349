package state_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

func TestKeyVectors(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]state.Key{
		"tenant-a#create_order#order-001": {Tenant: "tenant-a", Operation: "create_order", ID: "order-001"},
		"#op#1":                           {Operation: "op", ID: "1"},
		"##1":                             {ID: "1"},
		"a%23b#c%2Fd#e%25f":               {Tenant: "a#b", Operation: "c/d", ID: "e%f"},
		"#op#%2523":                       {Operation: "op", ID: "%23"},
		"t#op#a%00b%0A%7F":                {Tenant: "t", Operation: "op", ID: "a\x00b\n\x7f"},
		"t#op#a%C2%85":                    {Tenant: "t", Operation: "op", ID: "a\u0085"},
		"店#op#注文 😀":                       {Tenant: "店", Operation: "op", ID: "注文 😀"},
		"t#op#\ufffd":                     {Tenant: "t", Operation: "op", ID: "\ufffd"},
		"t#op#a b:c?d=e&f":                {Tenant: "t", Operation: "op", ID: "a b:c?d=e&f"},
	} {
		got, err := k.Encode()
		require.NoError(t, err, want)
		assert.Equal(t, want, got)
		assert.Equal(t, want, k.String())
		back, err := state.ParseKey(want)
		require.NoError(t, err, want)
		assert.Equal(t, k, back)
	}
}

func TestMalformedKeysAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	room := state.MaxKey - len("t#op#")
	for name, c := range map[string]struct {
		key    state.Key
		reason string
	}{
		"empty ID":                        {state.Key{Tenant: "t", Operation: "op"}, "the ID is empty"},
		"nothing":                         {state.Key{}, "the ID is empty"},
		"control characters":              {state.Key{Tenant: "t", Operation: "op", ID: "\x00\n\x7f\u0085"}, "control characters alone"},
		"one control character":           {state.Key{Tenant: "t", Operation: "op", ID: "\t"}, "control characters alone"},
		"too long":                        {state.Key{Tenant: "t", Operation: "op", ID: strings.Repeat("x", room+1)}, "1025 bytes encoded, at most 1024"},
		"too long once escaped":           {state.Key{Tenant: "t", Operation: "op", ID: strings.Repeat("#", room/3+1)}, "bytes encoded"},
		"too long a tenant":               {state.Key{Tenant: strings.Repeat("x", state.MaxKey), Operation: "op", ID: "1"}, "bytes encoded"},
		"invalid UTF-8":                   {state.Key{Tenant: "t", Operation: "op", ID: "a\xff"}, "the ID is not valid UTF-8"},
		"invalid UTF-8 in the tenant":     {state.Key{Tenant: "\xc3", Operation: "op", ID: "a"}, "the tenant is not valid UTF-8"},
		"invalid UTF-8 in the operation":  {state.Key{Operation: "\xed\xa0\x80", ID: "a"}, "the operation is not valid UTF-8"},
		"control characters and no UTF-8": {state.Key{Operation: "op", ID: "\n\xff"}, "the ID is not valid UTF-8"},
	} {
		_, err := c.key.Encode()
		require.ErrorIs(t, err, state.ErrInvalidKey, name)
		assert.ErrorContains(t, err, c.reason, name)
	}
	for _, k := range []state.Key{
		{Tenant: "t", Operation: "op", ID: strings.Repeat("x", room)}, {Tenant: "t", Operation: "op", ID: "\x00x"}, {ID: " "}, {ID: "\u200b"},
	} {
		_, err := k.Encode()
		assert.NoError(t, err)
	}
}

func TestParseKeyAcceptsOnlyWhatEncodeReturns(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "a", "a#b", "#", "##", "a#b#", "a#b#c#d", "###", "a#b#c/d", "a#b#%", "a#b#%2", "a#b#%2f", "a#b#%zz", "a#b#%41", "a#b#%E3%81", "a#b#\n", "a#b#%00",
		"a#b#c\x00", "a#b#\xff", "a#b#%FF", "a#b#%C3%A9", "a#b#" + strings.Repeat("x", state.MaxKey),
	} {
		_, err := state.ParseKey(s)
		assert.ErrorIs(t, err, state.ErrInvalidKey, "%.40q", s)
	}
}

func TestEscapePart(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "plain", state.EscapePart("plain"))
	assert.Equal(t, "a%2Fb%23c%25d%0Ae é", state.EscapePart("a/b#c%d\ne é"))
	assert.Equal(t, "%FF%C3x", state.EscapePart("\xff\xc3x"), "what is no UTF-8 stays distinct")
}

func FuzzKeyIsInjective(f *testing.F) {
	f.Add("t", "op", "1", "t", "op", "2")
	f.Add("t#op", "1", "x", "t", "op#1", "x")
	f.Add("%23", "/", "\x00a", "#", "%2F", "%00a")
	f.Fuzz(func(t *testing.T, t1, o1, i1, t2, o2, i2 string) {
		a, b := state.Key{Tenant: t1, Operation: o1, ID: i1}, state.Key{Tenant: t2, Operation: o2, ID: i2}
		if a != b {
			require.NotEqual(t, a.String(), b.String(), "two keys meet")
		}
		enc, err := a.Encode()
		if err != nil {
			require.ErrorIs(t, err, state.ErrInvalidKey)
			return
		}
		require.True(t, utf8.ValidString(enc))
		require.LessOrEqual(t, len(enc), state.MaxKey)
		require.Equal(t, 2, strings.Count(enc, "#"))
		require.NotContains(t, enc, "/", "what is derived from a key begins where the key ends")
		require.NotContains(t, enc, "\x00")
		require.Equal(t, -1, strings.IndexFunc(enc, unicode.IsControl))
		back, err := state.ParseKey(enc)
		require.NoError(t, err)
		require.Equal(t, a, back)
		run, ok := state.MessageRun(enc + "/step/0")
		require.True(t, ok)
		require.Equal(t, enc, run)
	})
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"t#op#1", "a%23b#c%2Fd#e%25f", "##%00", "##%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := state.ParseKey(s)
		if err != nil {
			require.ErrorIs(t, err, state.ErrInvalidKey)
			return
		}
		enc, err := k.Encode()
		require.NoError(t, err)
		require.Equal(t, s, enc)
	})
}

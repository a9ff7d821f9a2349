package state_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// hiddenText gives away by MarshalText what no field shows.
type hiddenText struct{ text string }

func (h hiddenText) MarshalText() ([]byte, error) { return []byte(h.text), nil }

// hiddenByPointer does so only where it can be pointed to.
type hiddenByPointer struct{ text string }

func (h *hiddenByPointer) MarshalText() ([]byte, error) { return []byte(h.text), nil }

// hiddenJSON gives it away by MarshalJSON.
type hiddenJSON struct{ text string }

func (h hiddenJSON) MarshalJSON() ([]byte, error)    { return json.Marshal(h.text) }
func (h *hiddenJSON) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &h.text) }

// oneWay can't be read again.
type oneWay struct{ text string }

func (o oneWay) MarshalJSON() ([]byte, error) { return json.Marshal(o.text) }
func (o *oneWay) UnmarshalJSON([]byte) error  { panic("s3cret") }

// event encodes itself as many types do, and has JSON of another program in it.
type event struct {
	Name string
	Body json.RawMessage
}

func (e event) MarshalJSON() ([]byte, error) {
	type plain event
	return json.Marshal(plain(e))
}

// label is a string that is written otherwise, but not as a map's key.
type label string

func (label) MarshalText() ([]byte, error) { return []byte("label"), nil }

func nested(depth int, v any) any {
	for range depth {
		v = []any{v}
	}
	return v
}

func TestTextThatIsNoUTF8IsRefused(t *testing.T) {
	t.Parallel()
	type inner struct{ Names []string }
	type value struct {
		Text    string
		Any     any
		Map     map[string]*inner
		Bytes   []byte
		Left    string `json:"-"`
		Quoted  string `json:",string"`
		private string
	}
	escaped := json.RawMessage(`"\ufffd"`)
	for name, tc := range map[string]struct {
		v    any
		good bool
	}{
		"plain":                            {value{Text: "añ\u2028"}, true},
		"a real replacement":               {value{Text: "a\ufffd"}, true},
		"an escape in raw JSON":            {escaped, true},
		"one in an interface":              {value{Any: []any{escaped, &escaped, nil, (*hiddenByPointer)(nil)}}, true},
		"one in a value that encodes it":   {event{Name: "a\ufffd", Body: escaped}, true},
		"the same by a pointer":            {&event{Name: `\ufffd`, Body: escaped}, true},
		"text that spells it":              {value{Text: `\ufffd`, Quoted: `\ufffd`}, true},
		"a text method that spells it":     {[]any{hiddenText{`\ufffd`}, &hiddenByPointer{`\ufffd`}}, true},
		"a JSON method that spells it":     {hiddenJSON{`\ufffd`}, true},
		"what is not encoded":              {value{Text: `\ufffd`, Left: "\xff", private: "\xff"}, true},
		"bytes":                            {value{Text: `\ufffd`, Bytes: []byte("\xff")}, true},
		"a string that is written as text": {[]any{label("\xff"), "\ufffd"}, true},
		"a method that is not called":      {[]any{hiddenByPointer{"\xff"}, `\ufffd`}, true},
		"deep":                             {nested(state.MaxDepth-1, "\ufffd"), true},
		"a field":                          {value{Text: "a\xff"}, false},
		"a quoted field":                   {value{Quoted: "a\xff"}, false},
		"in an interface":                  {value{Any: []any{"a\xff"}}, false},
		"in a map's value":                 {value{Map: map[string]*inner{"k": {Names: []string{"ok", "\xc0"}}}}, false},
		"a map's key":                      {map[string]int{"\xff": 1}, false},
		"a map's key with a method":        {map[label]int{"\xff": 1}, false},
		"a map's key made by a method":     {map[hiddenText]int{{"\xff"}: 1}, false},
		"a string":                         {"\xff", false},
		"given away as text":               {hiddenText{"\xff"}, false},
		"given away as text by a pointer":  {[]hiddenByPointer{{"\xff"}}, false},
		"given away as JSON":               {hiddenJSON{"\xff"}, false},
		"given away beside an escape":      {[]any{escaped, hiddenJSON{"\xff"}}, false},
		"given away for good":              {oneWay{"\xff"}, false},
		"beside an escape":                 {event{Name: "\xff", Body: escaped}, false},
		"deep in a list":                   {nested(600, "\xff"), false},
		"deep, given away":                 {nested(600, hiddenText{"\xff"}), false},
		"deeper than is looked":            {nested(20*state.MaxDepth, "\xff"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := state.Encode(tc.v)
			require.NoError(t, err)
			err = state.CheckText(tc.v, raw)
			if tc.good {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, state.ErrInvalidInput)
			require.NotContains(t, err.Error(), "\xff")
		})
	}
}

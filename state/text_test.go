package state_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

func TestTextThatIsNoUTF8IsRefused(t *testing.T) {
	type inner struct{ Names []string }
	type value struct {
		Text    string
		Any     any
		Map     map[string]*inner
		Left    string `json:"-"`
		private string
	}
	for name, tc := range map[string]struct {
		v    any
		good bool
	}{
		"plain":                 {value{Text: "añ\u2028"}, true},
		"a real replacement":    {value{Text: "a\ufffd"}, true},
		"an escape in raw JSON": {json.RawMessage(`"\ufffd"`), true},
		"text that spells it":   {value{Text: `\ufffd`}, true},
		"what is not encoded":   {value{Text: `\ufffd`, Left: "\xff", private: "\xff"}, true},
		"a field":               {value{Text: "a\xff"}, false},
		"in an interface":       {value{Any: []any{"a\xff"}}, false},
		"in a map's value":      {value{Map: map[string]*inner{"k": {Names: []string{"ok", "\xc0"}}}}, false},
		"a map's key":           {map[string]int{"\xff": 1}, false},
		"a string":              {"\xff", false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := state.Encode(tc.v)
			require.NoError(t, err)
			err = state.CheckText(tc.v, raw)
			if tc.good {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, state.ErrInvalidInput)
		})
	}
}

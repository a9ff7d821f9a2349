package statetest_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// TestTheContractNamesEverything: a method, a capability or a field of a change that is added needs its words.
func TestTheContractNamesEverything(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/writing-a-store.md")
	require.NoError(t, err)
	store := reflect.TypeFor[state.Store]()
	for i := range store.NumMethod() {
		assert.Contains(t, string(page), "`"+store.Method(i).Name+"`")
	}
	for _, fields := range []reflect.Type{reflect.TypeFor[state.Capabilities](), reflect.TypeFor[state.Change]()} {
		for i := range fields.NumField() {
			name := fields.Field(i).Name
			if name == "Key" || name == "Durable" {
				continue
			}
			assert.Regexp(t, "`"+name+"[:`]", string(page), "%s.%s", fields.Name(), name)
		}
	}
}

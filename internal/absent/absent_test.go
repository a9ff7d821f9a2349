package absent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
)

func TestIs(t *testing.T) {
	var pointer *int
	var function func()
	for name, thing := range map[string]any{"nothing": nil, "a nil pointer": pointer, "a nil function": function} {
		assert.True(t, absent.Is(thing), name)
	}
	for name, thing := range map[string]any{"a value": 0, "a pointer": new(int), "a function": func() {}, "an empty struct": struct{}{}} {
		assert.False(t, absent.Is(thing), name)
	}
}

package tame_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/internal/tame"
)

type wild struct{ inner error }

func (e *wild) Error() string { return "wild: " + e.inner.Error() }

func (e *wild) Unwrap() error { return e.inner }

// mute can be printed, but not be taken apart.
type mute struct{ wild }

func (*mute) Error() string { return "mute" }

// every says that it is every error.
type every struct{}

func (every) Error() string { return "every" }

func (every) Is(error) bool { return true }

func TestErrors(t *testing.T) {
	fine := &wild{errors.New("inner")}
	assert.Same(t, fine, tame.Error(fine))
	assert.NoError(t, tame.Error(nil))
	var typed *wild
	var silent *mute
	for name, err := range map[string]error{
		"a typed nil":                  typed,
		"one that wraps one":           fmt.Errorf("outer: %w", error(&wild{silent})),
		"one that is every other":      every{},
		"joined with one":              errors.Join(errors.New("a"), silent),
		"one that is only taken apart": silent,
	} {
		assert.False(t, tame.Is(err), name)
		got := tame.Error(err)
		assert.NotPanics(t, func() { assert.NotErrorIs(t, got, errors.ErrUnsupported) }, name)
		assert.ErrorContains(t, got, fmt.Sprintf("%T", err), name)
	}
}

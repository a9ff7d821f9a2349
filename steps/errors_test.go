package steps_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

var errBase = errors.New("base")

// typed is an error of a user's own, of which a nil one is a value like any other.
type typed struct{ words string }

func (t *typed) Error() string {
	if t == nil {
		return "a typed nil"
	}
	return t.words
}

// wrapped are the ways in which an error may be found inside another.
var wrapped = map[string]func(error) error{
	"as it is":       func(err error) error { return err },
	"through %w":     func(err error) error { return fmt.Errorf("outer: %w", err) },
	"through two %w": func(err error) error { return fmt.Errorf("a: %w, b: %w", errors.New("other"), err) },
	"joined first":   func(err error) error { return errors.Join(err, errors.New("other")) },
	"joined last":    func(err error) error { return errors.Join(errors.New("other"), err) },
	"joined and deep": func(err error) error {
		return fmt.Errorf("x: %w", errors.Join(errors.New("a"), fmt.Errorf("y: %w", err)))
	},
	"under a code":       func(err error) error { return steps.WithCode("c", err) },
	"beside a typed nil": func(err error) error { return errors.Join((*typed)(nil), err) },
}

func TestPermanentIsFoundThroughAllWrapping(t *testing.T) {
	t.Parallel()
	for name, wrap := range wrapped {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.True(t, steps.IsPermanent(wrap(steps.Permanent(errBase))))
			require.True(t, steps.IsPermanent(wrap(backoff.Permanent(errBase))))
			require.True(t, steps.IsPermanent(wrap(steps.Permanent(steps.RetryAfter(time.Second, errBase)))), "permanent is stronger")
			require.True(t, steps.IsPermanent(wrap(steps.RetryAfter(time.Second, steps.Permanent(errBase)))), "permanent is stronger")
			require.False(t, steps.IsPermanent(wrap(errBase)))
			require.False(t, steps.IsPermanent(wrap(steps.RetryAfter(time.Second, errBase))))
			require.ErrorIs(t, wrap(steps.Permanent(errBase)), errBase)
		})
	}
}

func TestPermanentKeepsTheWords(t *testing.T) {
	t.Parallel()
	require.EqualError(t, steps.Permanent(errBase), "base")
	require.EqualError(t, steps.RetryAfter(time.Second, errBase), "base")
	require.EqualError(t, steps.WithCode("c", errBase), "base")
}

func TestNilStaysNil(t *testing.T) {
	t.Parallel()
	require.NoError(t, steps.Permanent(nil))
	require.NoError(t, steps.WithCode("c", nil))
	require.False(t, steps.IsPermanent(nil))
	require.Empty(t, steps.Code(nil))
	_, ok := steps.Delay(nil)
	require.False(t, ok)
}

// A typed nil is an error, of no class of its own.
func TestATypedNilIsAnErrorLikeAnyOther(t *testing.T) {
	t.Parallel()
	var err error = (*typed)(nil)
	require.False(t, steps.IsPermanent(err))
	require.True(t, steps.IsPermanent(steps.Permanent(err)))
	require.Equal(t, "c", steps.Code(steps.WithCode("c", err)))
	require.EqualError(t, steps.Permanent(err), "a typed nil")
}

// Not even backoff's own error as a typed nil, whose methods panic, is more than that.
func TestATypedNilOfBackoffIsNoPanic(t *testing.T) {
	t.Parallel()
	var err error = (*backoff.PermanentError)(nil)
	require.NotPanics(t, func() {
		require.False(t, steps.IsPermanent(err))
		_, ok := steps.Delay(err)
		require.False(t, ok)
		require.Empty(t, steps.Code(err))
	})
}

func TestRetryAfterIsFoundThroughAllWrapping(t *testing.T) {
	t.Parallel()
	for name, wrap := range wrapped {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, ok := steps.Delay(wrap(steps.RetryAfter(time.Minute, errBase)))
			require.True(t, ok)
			require.Equal(t, time.Minute, d)
			require.ErrorIs(t, wrap(steps.RetryAfter(time.Minute, errBase)), errBase)
			_, ok = steps.Delay(wrap(errBase))
			require.False(t, ok)
			_, ok = steps.Delay(wrap(steps.Permanent(errBase)))
			require.False(t, ok)
		})
	}
	err := steps.RetryAfter(time.Minute, nil)
	require.Error(t, err, "nil stands for not yet")
	d, ok := steps.Delay(err)
	require.True(t, ok)
	require.Equal(t, time.Minute, d)
	d, ok = steps.Delay(steps.RetryAfter(-time.Minute, errBase))
	require.True(t, ok)
	require.Zero(t, d)
}

func TestACodeIsFoundThroughAllWrapping(t *testing.T) {
	t.Parallel()
	for name, wrap := range wrapped {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := "inner"
			if name == "under a code" {
				want = "c" // the outermost counts
			}
			for _, inner := range []error{errBase, steps.Permanent(errBase), steps.RetryAfter(time.Second, errBase)} {
				require.Equal(t, want, steps.Code(wrap(steps.WithCode("inner", inner))))
				require.Equal(t, steps.IsPermanent(inner), steps.IsPermanent(wrap(steps.WithCode("inner", inner))), "the class is not changed")
			}
			require.Equal(t, want, steps.Code(wrap(steps.Permanent(steps.WithCode("inner", errBase)))))
		})
	}
	require.Equal(t, "outer", steps.Code(steps.WithCode("outer", fmt.Errorf("x: %w", steps.WithCode("inner", errBase)))))
	require.Empty(t, steps.Code(errBase))
}

// What the engine makes of a class, seen from outside: how often the function is called, and what the caller gets.
func TestTheClassDecides(t *testing.T) {
	t.Parallel()
	quick := steps.RetryPolicy{Initial: time.Microsecond, Max: time.Microsecond}
	for name, tc := range map[string]struct {
		err   error
		kind  error
		calls int
	}{
		"permanent":                    {steps.Permanent(errBase), saga.ErrFailed, 1},
		"backoff's":                    {backoff.Permanent(errBase), saga.ErrFailed, 1},
		"transient":                    {errBase, saga.ErrInterrupted, 3},
		"later":                        {steps.RetryAfter(time.Microsecond, errBase), saga.ErrInterrupted, 3},
		"much later":                   {steps.RetryAfter(time.Hour, errBase), saga.ErrInterrupted, 1},
		"a typed nil":                  {(*typed)(nil), saga.ErrInterrupted, 3},
		"a deadline of the step's own": {context.DeadlineExceeded, saga.ErrInterrupted, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			s := steps.Do("s", func(context.Context, *orderRun) error { calls++; return tc.err }).Retry(quick)
			o, err := saga.New(saga.Define("op", saga.NoResult[order], s), memory.New())
			require.NoError(t, err)
			_, err = o.Run(t.Context(), saga.Key{ID: "1"}, order{})
			require.ErrorIs(t, err, tc.kind)
			require.Equal(t, tc.calls, calls)
		})
	}
}

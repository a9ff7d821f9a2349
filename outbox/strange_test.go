package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// nilError is an error of which a typed nil, a well-known slip, panics.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// brokenError is an error with a method that panics.
type brokenError struct{ method string }

func (e brokenError) Error() string { return e.in("Error") }
func (e brokenError) Is(error) bool { return e.in("Is") == "" }
func (e brokenError) As(any) bool   { return e.in("As") == "" }
func (e brokenError) Unwrap() error { return errors.New(e.in("Unwrap")) }
func (e brokenError) in(m string) string {
	if e.method == m {
		panic(m)
	}
	return "broken"
}

// listError is an error that can't be compared.
type listError []string

func (e listError) Error() string { return strings.Join(e, ", ") }

type publisherFunc func(msgs []outbox.Message) ([]outbox.Result, error)

func (f publisherFunc) Publish(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	return f(msgs)
}

// What a publisher returns as an error is looked at where nobody would catch a panic: it must not end the process, and
// the messages stay due, or are parked.
func TestErrorsOfAPublisherThatCanNotBeLookedAt(t *testing.T) {
	t.Parallel()
	strange := map[string]error{
		"typed nil": (*nilError)(nil), "not comparable": listError{"a"}, "joined": errors.Join(errors.New("a"), (*nilError)(nil)),
		"Error": brokenError{"Error"}, "Is": brokenError{"Is"}, "As": brokenError{"As"}, "Unwrap": brokenError{"Unwrap"},
	}
	for name, bad := range strange {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, tc := range map[string]struct {
				publish publisherFunc
				class   error
				parked  bool
			}{
				"of the call": {func([]outbox.Message) ([]outbox.Result, error) { return nil, bad }, outbox.ErrOutage, false},
				"failed": {func(msgs []outbox.Message) ([]outbox.Result, error) {
					return []outbox.Result{{ID: msgs[0].ID, Err: bad}}, nil
				}, outbox.ErrUnsent, false},
				"refused": {func(msgs []outbox.Message) ([]outbox.Result, error) {
					return []outbox.Result{{ID: msgs[0].ID, Err: bad, Refused: true}}, nil
				}, outbox.ErrUnsent, true},
			} {
				store := memory.New()
				key := seed(t, store, "1", plain(t, "1", 1)...)
				relay, err := outbox.NewRelay(store, tc.publish, nil, outbox.WithMaxRefusals(2), outbox.WithBackoff(time.Millisecond, time.Millisecond))
				require.NoError(t, err, how)
				claimed, err := store.Claim(t.Context(), 1, time.Minute)
				require.NoError(t, err, how)
				err = relay.Deliver(t.Context(), claimed[0], time.Minute)
				require.ErrorIs(t, err, tc.class, how)
				require.NotEmpty(t, err.Error(), how)

				err = relay.Drain(t.Context())
				require.Len(t, unsent(t, store, key), 1, how)
				if tc.parked {
					require.NoError(t, err, how)
					require.Len(t, parked(t, store), 1, how)
					continue
				}
				require.ErrorIs(t, err, tc.class, how)
				require.Empty(t, parked(t, store), how)
			}
		})
	}
}

package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// leaky is a value that JSON does not keep whole: one field is dropped, one is changed, and one is a reference.
type leaky struct {
	Kept    string
	Dropped string `json:"-"`
	Folded  folded
	List    []string
	Any     any
}

// folded comes back in lower case.
type folded string

func (f folded) MarshalText() ([]byte, error) { return []byte(strings.ToLower(string(f))), nil }

func (f *folded) UnmarshalText(b []byte) error { *f = folded(b); return nil }

var (
	whole   = leaky{Kept: "kept", Dropped: "dropped", Folded: "FOLDED", List: []string{"a", "b"}, Any: 7}
	decoded = leaky{Kept: "kept", Folded: "folded", List: []string{"a", "b"}, Any: json.Number("7")}
)

type leakyRun = steps.Run[leaky]

// seenValues are what the functions of a run of leaky values saw, in order.
type seenValues struct {
	names  []string
	values []leaky
}

func (s *seenValues) add(name string, v leaky) {
	v.List = slices.Clone(v.List) // as it is now: the functions spoil theirs
	s.names, s.values = append(s.names, name), append(s.values, v)
}

func (s *seenValues) require(t *testing.T, names ...string) {
	t.Helper()
	require.Equal(t, names, s.names)
	for i, v := range s.values {
		require.Equal(t, decoded, v, s.names[i])
	}
}

// leakySaga hands the value on through input, output and result. s2 fails as asked.
func leakySaga(seen *seenValues, s2 func() error) *saga.Definition[leaky, leaky] {
	spoil := func(v leaky) {
		if len(v.List) > 0 {
			v.List[0] = "spoilt"
		}
	}
	first := steps.New("s1", func(_ context.Context, r *leakyRun) (leaky, error) {
		seen.add("input of s1", r.Input)
		spoil(r.Input)
		return whole, nil
	}).Compensate(func(_ context.Context, r *leakyRun, did steps.Outcome[leaky]) error {
		seen.add("input of the undo of s1", r.Input)
		seen.add("output in the undo of s1", did.Output)
		return nil
	})
	second := steps.New("s2", func(_ context.Context, r *leakyRun) (leaky, error) {
		seen.add("input of s2", r.Input)
		seen.add("output of s1 in s2", first.Output(r))
		spoil(first.Output(r))
		spoil(r.Input)
		seen.add("output of s1 in s2, again", first.Output(r))
		return whole, s2()
	}).Retry(once)
	third := steps.Do("s3", func(_ context.Context, r *leakyRun) error {
		got, ok := second.Lookup(r)
		if !ok {
			return steps.Permanent(errors.New("s2 has no output"))
		}
		seen.add("output of s2 in s3", got)
		return nil
	}).When(func(r *leakyRun) bool {
		seen.add("output of s2 in the When of s3", second.Output(r))
		return true
	})
	return saga.Define("leaky", func(_ context.Context, r *leakyRun) (leaky, error) {
		seen.add("output of s1 in the result", first.Output(r))
		return whole, nil
	}, first, second, third)
}

// Later steps see the decoded value on the first run, just as they do on a resume in another process, and so does the
// caller.
func TestValuesAreTheSameOnTheFirstRunAndOnAResume(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		head := []string{"input of s1"}
		tail := []string{
			"input of s2", "output of s1 in s2", "output of s1 in s2, again",
			"output of s2 in the When of s3", "output of s2 in s3", "output of s1 in the result",
		}
		ok := func() error { return nil }

		plain := new(seenValues)
		o := newSaga(t, leakySaga(plain, ok), open(), saga.WithClock(clk))
		got, err := o.Run(t.Context(), saga.Key{ID: "plain"}, whole)
		require.NoError(t, err)
		require.Equal(t, decoded, got)
		plain.require(t, slices.Concat(head, tail)...)
		got, err = o.Run(t.Context(), saga.Key{ID: "plain"}, whole)
		require.NoError(t, err)
		require.Equal(t, decoded, got, "a replay")

		resumed := new(seenValues)
		_, err = newSaga(t, leakySaga(resumed, func() error { return errors.New("busy") }), open(), saga.WithClock(clk)).Run(t.Context(), saga.Key{ID: "resumed"}, whole)
		sagaError(t, err, saga.ErrInterrupted)
		resumed.require(t, slices.Concat(head, tail[:3])...)
		got, err = newSaga(t, leakySaga(resumed, ok), open(), saga.WithClock(clk)).Resume(t.Context(), saga.Key{ID: "resumed"})
		require.NoError(t, err)
		require.Equal(t, decoded, got)
		resumed.require(t, slices.Concat(head, tail[:3], tail)...)
	})
}

// A compensation sees the decoded value too, in the run that made it and in another process.
func TestCompensationsSeeDecodedValues(t *testing.T) {
	undo := []string{"input of the undo of s1", "output in the undo of s1"}
	forward := []string{"input of s1", "input of s2", "output of s1 in s2", "output of s1 in s2, again"}
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		seen := new(seenValues)
		_, err := newSaga(t, leakySaga(seen, func() error { return steps.Permanent(errRefuse) }), open(), saga.WithClock(clk)).Run(t.Context(), theKey, whole)
		sagaError(t, err, saga.ErrFailed)
		seen.require(t, slices.Concat(forward, undo)...)

		seen = new(seenValues)
		key := saga.Key{ID: "2"}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = newSaga(t, leakySaga(seen, func() error { cancel(); return steps.Permanent(errRefuse) }), open(), saga.WithClock(clk)).Run(ctx, key, whole)
		sagaError(t, err, saga.ErrInterrupted)
		seen.require(t, forward...)
		_, err = newSaga(t, leakySaga(seen, nil), open(), saga.WithClock(clk)).Run(t.Context(), key, whole)
		sagaError(t, err, saga.ErrFailed)
		seen.require(t, slices.Concat(forward, undo)...)
	})
}

// What a Probe finds is decoded as well.
func TestAProbesResultIsDecoded(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		var seen leaky
		s1 := steps.New("s1", func(context.Context, *orderRun) (leaky, error) { return leaky{}, errors.New("no answer") }).
			Probe(func(context.Context, *orderRun) (leaky, bool, error) { return whole, true, nil }).Retry(once)
		s2 := steps.Do("s2", func(_ context.Context, r *orderRun) error { seen = s1.Output(r); return nil })
		o := newSaga(t, saga.Define("op", saga.NoResult[order], s1, s2), open(), saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		sagaError(t, err, saga.ErrInterrupted)
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err)
		require.Equal(t, decoded, seen)
	})
}

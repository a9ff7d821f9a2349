package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

type order struct {
	No     string `json:"no"`
	Amount int64  `json:"amount"`
	Secret string `json:"-"`
}

type stock struct {
	ID     string
	Secret string `json:"-"`
}

type paid struct {
	ID  string
	For string
}

type orderRun = steps.Run[order]

var (
	key     = saga.Key{Tenant: "t", ID: "1"}
	anOrder = order{"no-1", 1200, "dropped"}
	hold    = steps.New("reserve", func(context.Context, *orderRun) (stock, error) { return stock{}, nil })
	notify  = steps.Do("notify", func(context.Context, *orderRun) error { return nil })
)

// stopped is what a test that failed says, in place of a testing.TB.
type stopped struct {
	testing.TB
	said string
}

func (s *stopped) Helper() {}

func (s *stopped) Fatalf(format string, args ...any) {
	s.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// stops runs f, which should fail its test, and returns what that says.
func stops(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	s, done := &stopped{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
	require.NotEmpty(t, s.said, "it should have failed the test")
	return s.said
}

func TestDoCallsTheStepAsARealRunDoes(t *testing.T) {
	t.Parallel()
	var seen []string
	var attempts []int
	charge := steps.New("charge", func(ctx context.Context, r *orderRun) (paid, error) {
		fromContext, ok := steps.IdempotencyKey(ctx)
		assert.True(t, ok)
		got := hold.Output(r)
		none, ok := notify.Lookup(r)
		assert.True(t, ok)
		assert.Equal(t, steps.None{}, none)
		assert.Equal(t, order{No: "no-1", Amount: 1200}, r.Input, "decoded, as in a real run")
		assert.Equal(t, stock{ID: "r-1"}, got)
		assert.Equal(t, saga.Key{Tenant: "t", Operation: sagatest.Operation, ID: "1"}, r.Key())
		assert.Equal(t, "charge", r.Step())
		require.NoError(t, r.Cause())
		seen = append(seen, r.IdempotencyKey(), fromContext, string(r.Sub("fee")))
		attempts = append(attempts, r.Attempt())
		r.Input.No = "spoilt"
		return paid{"c-1", got.ID}, nil
	})
	r := sagatest.NewRun(t, key, charge, anOrder, sagatest.Given(hold, stock{"r-1", "dropped"}), sagatest.Given(notify, steps.None{}))
	for range 2 {
		out, err := sagatest.Do(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, paid{"c-1", "r-1"}, out)
	}
	one := []string{"t#operation#1/charge", "t#operation#1/charge", "t#operation#1/charge/fee"}
	require.Equal(t, append(one, one...), seen)
	require.Equal(t, []int{1, 2}, attempts)
}

// The keys and the messages are those of the run that an orchestrator makes of the same step.
func TestARunForATestIsLikeARealOne(t *testing.T) {
	t.Parallel()
	type call struct {
		key, sub string
		attempt  int
		resumed  bool
	}
	var calls []call
	var messages []outbox.Message
	step := steps.New("s", func(_ context.Context, r *orderRun) (stock, error) {
		calls = append(calls, call{r.IdempotencyKey(), r.Sub("x").String(), r.Attempt(), r.Resumed()})
		r.Emit(outbox.Message{Topic: "a", Body: r.Input})
		r.Emit(outbox.Message{Topic: "b", Key: "k", Body: []byte("raw")})
		return stock{ID: "1", Secret: "dropped"}, nil
	})
	store := memory.New()
	o, err := saga.New(saga.Define("operation", func(_ context.Context, r *orderRun) (stock, error) { return step.Output(r), nil }, step), store)
	require.NoError(t, err)
	real, err := o.Run(t.Context(), key, anOrder)
	require.NoError(t, err)
	rec, err := o.Get(t.Context(), key)
	require.NoError(t, err)
	for _, m := range rec.Outbox.Messages {
		m.Message.Time = time.Time{} // of the commit
		messages = append(messages, m.Message)
	}

	r := sagatest.NewRun(t, key, step, anOrder)
	tested, err := sagatest.Do(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, real, tested)
	require.Equal(t, calls[0], calls[1])
	require.Equal(t, messages, sagatest.Emitted(r))
}

func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	declined := errors.New("declined")
	for name, tc := range map[string]struct {
		do        func(r *orderRun) (any, error)
		permanent bool
		says      string
	}{
		"transient":      {do: func(*orderRun) (any, error) { return nil, declined }, says: "declined"},
		"permanent":      {do: func(*orderRun) (any, error) { return nil, steps.Permanent(declined) }, permanent: true, says: "declined"},
		"backoff's":      {do: func(*orderRun) (any, error) { return nil, backoff.Permanent(declined) }, permanent: true, says: "declined"},
		"a panic":        {do: func(*orderRun) (any, error) { panic("oh no") }, says: "panic: oh no"},
		"Output's panic": {do: func(r *orderRun) (any, error) { return hold.Output(r), nil }, permanent: true, says: "reserve"},
		"a bad message": {do: func(r *orderRun) (any, error) {
			r.Emit(outbox.Message{Topic: "t", Body: make(chan int)})
			return nil, nil
		}, permanent: true, says: "chan int"},
		"a bad result": {do: func(*orderRun) (any, error) { return make(chan int), nil }, says: "can't be recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sagatest.NewRun(t, key, steps.New("s", func(_ context.Context, r *orderRun) (any, error) { return tc.do(r) }), anOrder)
			_, err := sagatest.Do(t.Context(), r)
			require.ErrorContains(t, err, tc.says)
			require.Equal(t, tc.permanent, steps.IsPermanent(err))
			require.Empty(t, sagatest.Emitted(r))
		})
	}
}

func TestUndoSeesWhatIsKnown(t *testing.T) {
	t.Parallel()
	why := errors.New("the customer changed their mind")
	var seen []steps.Outcome[paid]
	var causes []error
	var keys []string
	var own, earlier []bool
	var charge *steps.Step[order, paid]
	charge = steps.New("charge", func(context.Context, *orderRun) (paid, error) { return paid{}, nil }).
		Compensate(func(_ context.Context, r *orderRun, did steps.Outcome[paid]) error {
			seen, causes, keys = append(seen, did), append(causes, r.Cause()), append(keys, r.IdempotencyKey())
			_, ok := charge.Lookup(r)
			_, before := hold.Lookup(r)
			own, earlier = append(own, ok), append(earlier, before)
			r.Emit(outbox.Message{Topic: "refunded", Body: did.Output.ID})
			return nil
		})
	r := sagatest.NewRun(t, key, charge, anOrder, sagatest.Given(hold, stock{ID: "r-1"}), sagatest.Because(why))
	require.NoError(t, sagatest.Undo(t.Context(), r, steps.Outcome[paid]{Known: true, Output: paid{ID: "c-1"}}))
	require.Equal(t, "t#operation#1/charge/compensate/0", sagatest.Emitted(r)[0].ID)
	require.NoError(t, sagatest.Undo(t.Context(), r, steps.Outcome[paid]{}))
	require.Equal(t, []steps.Outcome[paid]{
		{Known: true, Output: paid{ID: "c-1"}, Key: "t#operation#1/charge"},
		{Key: "t#operation#1/charge"},
	}, seen)
	require.Equal(t, []error{why, why}, causes)
	require.Equal(t, []string{"t#operation#1/charge/compensate", "t#operation#1/charge/compensate"}, keys)
	require.Equal(t, []bool{true, false}, own)
	require.Equal(t, []bool{true, true}, earlier)

	require.NoError(t, sagatest.Undo(t.Context(), sagatest.NewRun(t, key, charge, anOrder), steps.Outcome[paid]{}))
	require.Error(t, causes[2], "there is always a cause")
}

func TestProbeAndWhen(t *testing.T) {
	t.Parallel()
	found := true
	s := steps.New("s", func(context.Context, *orderRun) (stock, error) { return stock{}, nil }).
		When(func(r *orderRun) bool { return r.Input.Amount > 1000 }).
		Probe(func(_ context.Context, r *orderRun) (stock, bool, error) {
			assert.Equal(t, "t#operation#1/s", r.IdempotencyKey())
			return stock{"found", "dropped"}, found, nil
		})
	r := sagatest.NewRun(t, key, s, anOrder)
	out, ok, err := sagatest.Probe(t.Context(), r)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, stock{ID: "found"}, out)
	found = false
	out, ok, err = sagatest.Probe(t.Context(), r)
	require.NoError(t, err)
	require.False(t, ok)
	require.Zero(t, out)

	yes, err := sagatest.When(r)
	require.NoError(t, err)
	require.True(t, yes)
	yes, err = sagatest.When(sagatest.NewRun(t, key, s, order{Amount: 1}))
	require.NoError(t, err)
	require.False(t, yes)
	yes, err = sagatest.When(sagatest.NewRun(t, key, steps.New("s", func(context.Context, *orderRun) (int, error) { return 0, nil }).
		When(func(r *orderRun) bool { r.Emit(outbox.Message{Topic: "t"}); return true }), anOrder))
	require.ErrorIs(t, err, outbox.ErrInvalidMessage)
	require.False(t, yes)
}

func TestOptionsOfARun(t *testing.T) {
	t.Parallel()
	s := steps.New("s", func(_ context.Context, r *orderRun) (string, error) {
		_, ok := hold.Lookup(r)
		return fmt.Sprint(r.Attempt(), r.Resumed(), ok), nil
	})
	out, err := sagatest.Do(t.Context(), sagatest.NewRun(t, key, s, anOrder, sagatest.AfterAttempts(2), sagatest.Skipped(hold)))
	require.NoError(t, err)
	require.Equal(t, "3 true false", out)
	out, err = sagatest.Do(t.Context(), sagatest.NewRun(t, saga.Key{Operation: "mine", ID: "1"}, s, anOrder))
	require.NoError(t, err)
	require.Equal(t, "1 false false", out)
}

func TestTheTimeoutEndsTheContext(t *testing.T) {
	t.Parallel()
	s := steps.Do("s", func(ctx context.Context, _ *orderRun) error {
		<-ctx.Done()
		return ctx.Err()
	}).Timeout(time.Millisecond)
	_, err := sagatest.Do(t.Context(), sagatest.NewRun(t, key, s, anOrder))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, steps.IsPermanent(err))
}

func TestWhatARealRunWouldRefuseFailsTheTest(t *testing.T) {
	t.Parallel()
	plain := steps.New("s", func(context.Context, *orderRun) (int, error) { return 0, nil })
	for name, tc := range map[string]struct {
		f    func(tb testing.TB)
		says string
	}{
		"a nil step":      {func(tb testing.TB) { sagatest.NewRun(tb, key, (*steps.Step[order, int])(nil), anOrder) }, "the step is nil"},
		"an empty ID":     {func(tb testing.TB) { sagatest.NewRun(tb, saga.Key{}, plain, anOrder) }, "the ID is empty"},
		"a contradiction": {func(tb testing.TB) { sagatest.NewRun(tb, key, steps.New[order, int]("s", nil), anOrder) }, "function is nil"},
		"itself as given": {func(tb testing.TB) { sagatest.NewRun(tb, key, plain, anOrder, sagatest.Given(plain, 1)) }, "step at hand"},
		"given twice": {func(tb testing.TB) {
			sagatest.NewRun(tb, key, plain, anOrder, sagatest.Given(hold, stock{}), sagatest.Skipped(hold))
		}, "twice"},
		"a nil step as given": {func(tb testing.TB) {
			sagatest.NewRun(tb, key, plain, anOrder, sagatest.Given((*steps.Step[order, int])(nil), 1))
		}, "nil"},
		"a nil step skipped": {func(tb testing.TB) {
			sagatest.NewRun(tb, key, plain, anOrder, sagatest.Skipped((*steps.Step[order, int])(nil)))
		}, "nil"},
		"negative attempts": {func(tb testing.TB) { sagatest.NewRun(tb, key, plain, anOrder, sagatest.AfterAttempts(-1)) }, "negative"},
		"no cause":          {func(tb testing.TB) { sagatest.NewRun(tb, key, plain, anOrder, sagatest.Because(nil)) }, "Because(nil)"},
		"input": {func(tb testing.TB) {
			sagatest.NewRun(tb, key, steps.New("s", func(context.Context, *steps.Run[chan int]) (int, error) { return 0, nil }), make(chan int))
		}, "chan int"},
		"an output": {func(tb testing.TB) {
			anything := steps.New("a", func(context.Context, *orderRun) (any, error) { return nil, nil })
			sagatest.NewRun(tb, key, plain, anOrder, sagatest.Given(anything, any(make(chan int))))
		}, "chan int"},
		"no compensation": {func(tb testing.TB) {
			_ = sagatest.Undo(t.Context(), sagatest.NewRun(tb, key, plain, anOrder), steps.Outcome[int]{})
		}, "declares no compensation"},
		"no Probe": {func(tb testing.TB) { _, _, _ = sagatest.Probe(t.Context(), sagatest.NewRun(tb, key, plain, anOrder)) }, "declares none"},
		"no When":  {func(tb testing.TB) { _, _ = sagatest.When(sagatest.NewRun(tb, key, plain, anOrder)) }, "declares none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := stops(t, tc.f)
			require.Contains(t, said, tc.says)
			require.True(t, strings.HasPrefix(said, "sagatest: "), said)
		})
	}
}

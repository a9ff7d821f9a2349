package saga_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func init() { children["code"] = childCode }

var (
	// ErrDeclined and ErrClosed are errors of a user's own.
	ErrDeclined = errors.New("the card was declined")
	ErrClosed   = errors.New("the account is closed")
)

var userErrors = saga.WithErrors(map[string]error{"card_declined": ErrDeclined, "closed": ErrClosed})

// declined is what s2 of these sagas says.
func declined() error {
	return steps.Permanent(steps.WithCode("card_declined", fmt.Errorf("card 12: %w", ErrDeclined)))
}

// childCode runs the key and tells what holds of its error.
func childCode() int {
	return inChild(func(ctx context.Context, _ *site, store state.Store) (any, error) {
		o, err := saga.New(chain{p: new(participant), before: at("s2", failing(declined()))}.of(three), store, userErrors)
		if err != nil {
			return nil, err
		}
		_, err = o.Run(ctx, theKey, theOrder)
		return describe(err), nil
	})
}

// described is what can be said of an error across processes.
type described struct {
	Declined, Failed bool
	Code, Step, Text string
}

func describe(err error) described {
	d := described{Declined: errors.Is(err, ErrDeclined), Failed: errors.Is(err, saga.ErrFailed)}
	var e *saga.Error
	if errors.As(err, &e) {
		d.Code, d.Step, d.Text = e.Code, e.Step, e.Error()
	}
	return d
}

// errors.Is(err, ErrDeclined) holds on the first run, on a replay, and in another process, and all read the same.
func TestAnErrorsCodeHoldsInEveryProcess(t *testing.T) {
	want := described{Declined: true, Failed: true, Code: "card_declined", Step: "s2",
		Text: "saga: run t#chain#1, step s2: failed (card_declined): card 12: the card was declined"}
	for _, firstHere := range []bool{true, false} {
		t.Run(fmt.Sprintf("first run in this process: %v", firstHere), func(t *testing.T) {
			eachSite(t, func(t *testing.T, s *site) {
				o := newSaga(t, chain{p: new(participant), before: at("s2", failing(declined()))}.of(three), s.open(t), userErrors)
				elsewhere := func() {
					cmd, stdout := s.process(t.Context(), "code", "")
					require.NoError(t, cmd.Run())
					require.Equal(t, want, childSaid[described](t, stdout))
				}
				if !firstHere {
					elsewhere()
				}
				for range 2 {
					_, err := o.Run(t.Context(), theKey, theOrder)
					require.Equal(t, want, describe(err))
				}
				elsewhere()
			})
		})
	}
}

// The error itself is there in the run that met it, without WithErrors too; a replay then has its code and its words.
func TestTheErrorItselfIsThereInTheRunThatMetIt(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		o := newSaga(t, chain{p: new(participant), before: at("s2", failing(declined()))}.of(three), open(), saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, ErrDeclined)
		require.True(t, steps.IsPermanent(err))
		first := err.Error()
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NotErrorIs(t, err, ErrDeclined)
		require.Equal(t, "card_declined", sagaError(t, err, saga.ErrFailed).Code)
		require.Equal(t, first, err.Error())
	})
}

// A compensation is told why, with the user's own error, also in another process than the one that failed.
func TestACompensationIsToldTheCauseInEveryProcess(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		var causes []error
		store := open()
		dying := &mortal{Store: store}
		c := chain{p: new(participant), before: at("s2", failing(declined()))}
		c.beforeUndo = func(_ context.Context, r *orderRun) error {
			causes = append(causes, r.Cause())
			dying.kill()
			return nil
		}
		_, err := newSaga(t, c.of(three), dying, saga.WithClock(clk), userErrors).Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, errDead)
		lapse(clk)
		_, err = newSaga(t, c.of(three), store, saga.WithClock(clk), userErrors).Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, ErrDeclined)
		require.Len(t, causes, 2)
		for _, cause := range causes {
			require.ErrorIs(t, cause, ErrDeclined)
			require.EqualError(t, cause, "card 12: the card was declined")
		}
	})
}

// What blocks a run keeps its code as well.
func TestABlockedRunsErrorKeepsItsCode(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		c := chain{p: new(participant), before: at("s2", failing(declined()))}
		c.beforeUndo = at("s1", failing(steps.Permanent(steps.WithCode("closed", errors.New("closed last week")))))
		o := newSaga(t, c.of(three), open(), saga.WithClock(clk), userErrors)
		for range 2 {
			_, err := o.Run(t.Context(), theKey, theOrder)
			e := sagaError(t, err, saga.ErrBlocked)
			require.Equal(t, "closed", e.Code)
			require.Equal(t, "s1", e.Step)
			require.ErrorIs(t, err, ErrClosed)
			require.NotErrorIs(t, err, ErrDeclined)
		}
	})
}

// An interruption's code is told, too: it is the live error's.
func TestAnInterruptionsCode(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		busy := steps.WithCode("busy", errors.New("too many at once"))
		o := newSaga(t, chain{p: new(participant), before: at("s2", failing(busy))}.of(three), open(), saga.WithClock(clk))
		_, err := o.Run(t.Context(), theKey, theOrder)
		require.Equal(t, "busy", sagaError(t, err, saga.ErrInterrupted).Code)
		require.ErrorIs(t, err, busy)
		require.Equal(t, "busy", recordOf(t, open(), theKey, "chain").Steps[1].Error.Code)
	})
}

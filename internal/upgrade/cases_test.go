package upgrade

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// runCase is a run that was written by an earlier version, and what the present one makes of it.
type runCase struct {
	since     int // the record version that has it first; 0: 1
	operation string
	long      bool // its input and results are
	// trouble is what happened to it then.
	trouble map[string]error
	// after is what else happened then, to the record that the process had left.
	after func(t *testing.T, s state.Store, o *saga.Orchestrator[order, string], key saga.Key)

	// status that is stored.
	status state.Status
	// lead is what an operator does about it now, if it needs one.
	lead func(ctx context.Context, op *saga.Operator, key saga.Key) error
	// calls that are made now, and the end that it comes to.
	calls []string
	rests state.Status
	// due and parked are its messages at the end.
	due, parked []string
}

const (
	doB  = "b/0"
	notB = "b/compensate/0"
)

func retry(ctx context.Context, op *saga.Operator, key saga.Key) error {
	return op.Retry(ctx, key, "it is clear now")
}

var undone = []string{"undo c: by its result", "undo b: known true", "undo a: by its result"}

// cases are by the IDs of the runs. Cases are never changed once a version is out; further ones may be added for a new one.
var cases = map[string]runCase{
	"died-after-step-two": {
		trouble: map[string]error{"do c": errDeath}, status: state.StatusInProgress,
		calls: []string{"do c: attempt 2", "do d: attempt 1"}, rests: state.StatusCompleted, due: []string{doB},
	},
	"died-with-long-payloads": {
		long: true, trouble: map[string]error{"do d": errDeath}, status: state.StatusInProgress,
		calls: []string{"do d: attempt 2"}, rests: state.StatusCompleted, due: []string{doB},
	},
	"died-and-was-cancelled": {
		trouble: map[string]error{"do d": errDeath}, status: state.StatusInProgress,
		after: func(t *testing.T, s state.Store, _ *saga.Orchestrator[order, string], key saga.Key) {
			require.NoError(t, saga.NewOperator(s).Cancel(t.Context(), key, "not wanted"))
		},
		calls: append([]string{"undo d: by its key"}, undone...), rests: state.StatusFailed, due: []string{doB, notB},
	},
	"step-unknown": {
		trouble: map[string]error{"do c": errTransient}, status: state.StatusInterrupted,
		calls: []string{"do c: attempt 2", "do d: attempt 1"}, rests: state.StatusCompleted, due: []string{doB},
	},
	"step-unknown-and-turned-round": {
		trouble: map[string]error{"do c": errTransient}, status: state.StatusInterrupted,
		lead: func(ctx context.Context, op *saga.Operator, key saga.Key) error {
			return op.Cancel(ctx, key, "not wanted")
		},
		calls: append([]string{"undo c: by its key"}, undone[1:]...), rests: state.StatusFailed, due: []string{doB, notB},
	},
	"died-in-mid-undo": {
		trouble: map[string]error{"do d": errPermanent, "undo b": errDeath}, status: state.StatusCompensating,
		calls: undone[1:], rests: state.StatusFailed, due: []string{doB, notB},
	},
	"laid-down-in-mid-undo": {
		trouble: map[string]error{"do d": errPermanent, "undo b": errTransient}, status: state.StatusCompensating,
		calls: undone[1:], rests: state.StatusFailed, due: []string{doB, notB},
	},
	"completed": {
		after: sendAll, status: state.StatusCompleted, rests: state.StatusCompleted,
	},
	"completed-with-long-payloads": {
		long: true, after: sendAll, status: state.StatusCompleted, rests: state.StatusCompleted,
	},
	"completed-with-unsent-messages": {
		status: state.StatusCompleted, rests: state.StatusCompleted, due: []string{doB},
	},
	"failed": {
		trouble: map[string]error{"do d": errPermanent}, after: sendAll, status: state.StatusFailed, rests: state.StatusFailed,
	},
	"failed-with-a-parked-message": {
		trouble: map[string]error{"do d": errPermanent},
		after: func(t *testing.T, s state.Store, _ *saga.Orchestrator[order, string], key saga.Key) {
			b := claimed(t, s, key)
			require.NoError(t, s.Park(t.Context(), b, b.Messages[0].ID, "no such topic"))
		},
		status: state.StatusFailed, rests: state.StatusFailed, parked: []string{doB},
	},
	"reversed": {
		after: func(t *testing.T, _ state.Store, o *saga.Orchestrator[order, string], key saga.Key) {
			require.NoError(t, o.Reverse(t.Context(), key, "sent back"))
		},
		status: state.StatusReversed, rests: state.StatusReversed, due: []string{doB, notB},
	},
	"blocked-in-mid-undo": {
		trouble: map[string]error{"do d": errPermanent, "undo b": errPermanent}, status: state.StatusBlocked,
		lead: retry, calls: undone[1:], rests: state.StatusFailed, due: []string{doB, notB},
	},
	"blocked-at-most-once": {
		operation: "payout", trouble: map[string]error{"do pay": errTransient}, status: state.StatusBlocked,
		lead: retry, calls: []string{"do pay: attempt 1", "do book: attempt 1", "do tell: attempt 1"}, rests: state.StatusCompleted,
	},
	"blocked-at-most-once-and-it-happened": {
		operation: "payout", trouble: map[string]error{"do pay": errTransient}, status: state.StatusBlocked,
		lead: func(ctx context.Context, op *saga.Operator, key saga.Key) error {
			return op.MarkDone(ctx, key, "pay", "paid", "the bank says so")
		},
		calls: []string{"do book: attempt 1", "do tell: attempt 1"}, rests: state.StatusCompleted,
	},
	"died-with-its-mark": {
		operation: "payout", trouble: map[string]error{"do pay": errDeath}, status: state.StatusInProgress,
		rests: state.StatusBlocked,
	},
	"died-behind-the-pivot": {
		operation: "payout", trouble: map[string]error{"do tell": errDeath}, status: state.StatusInProgress,
		calls: []string{"do tell: attempt 2"}, rests: state.StatusCompleted,
	},
}

// claimed are the run's due messages.
func claimed(t *testing.T, s state.Store, key saga.Key) outbox.Batch {
	t.Helper()
	runKey, err := key.Encode()
	require.NoError(t, err)
	all, err := s.Claim(t.Context(), 1000, claimLease)
	require.NoError(t, err)
	var found outbox.Batch
	for _, b := range all {
		if b.RunKey == runKey {
			found = b
		} else {
			require.NoError(t, s.Sent(t.Context(), b, nil)) // given back
		}
	}
	return found
}

func sendAll(t *testing.T, s state.Store, _ *saga.Orchestrator[order, string], key saga.Key) {
	b := claimed(t, s, key)
	require.NotEmpty(t, b.Messages)
	var sent []string
	for _, m := range b.Messages {
		sent = append(sent, m.ID)
	}
	require.NoError(t, s.Sent(t.Context(), b, sent))
}

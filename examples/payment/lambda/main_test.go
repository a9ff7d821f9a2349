package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// childVariable says, in the environment, that this test binary is to be the program in place of its tests: the emulator
// starts it as a function.
const childVariable = "TSUZUKI_TEST_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// orderEvent is the event of two messages of one order.
func orderEvent(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile("order.json")
	require.NoError(t, err)
	return raw
}

// function is the handler with this environment.
func function[F any](t *testing.T, env map[string]string) F {
	t.Helper()
	handler, closeAll, err := newHandler(t.Context(), func(name string) string { return env[name] })
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, closeAll()) })
	f, ok := handler.(F)
	require.True(t, ok, "%T", handler)
	return f
}

func TestTwoMessagesOfOneOrderAreOneCharge(t *testing.T) {
	var event events.SQSEvent
	require.NoError(t, json.Unmarshal(orderEvent(t), &event))
	env := map[string]string{"PAYMENT_DB": filepath.Join(t.TempDir(), "runs.db")}
	handle := function[func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)](t, env)
	for range 2 {
		resp, err := handle(t.Context(), event)
		require.NoError(t, err)
		assert.Empty(t, resp.BatchItemFailures)
	}
	for _, service := range []string{"provider", "stock", "points"} {
		entries, err := ledger.Open(env["PAYMENT_DB"] + "." + service + ".jsonl").Entries()
		require.NoError(t, err)
		assert.Len(t, entries, 1, service)
	}
}

func TestTheScheduledFunction(t *testing.T) {
	env := map[string]string{"PAYMENT_DB": filepath.Join(t.TempDir(), "runs.db"), "PAYMENT_SWEEP": "1"}
	tick := function[func(context.Context, json.RawMessage) (sagalambda.Swept, error)](t, env)
	swept, err := tick(t.Context(), json.RawMessage(`{}`))
	require.NoError(t, err)
	assert.Equal(t, sagalambda.Swept{Drained: true}, swept)
}

func TestWithoutAStoreThereIsNoFunction(t *testing.T) {
	_, _, err := newHandler(t.Context(), func(string) string { return "" })
	require.ErrorContains(t, err, "PAYMENT_DB")
}

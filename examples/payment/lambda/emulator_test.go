//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/internal/lambdatest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// deployed is the function's environment variables.
type deployed map[string]string

func (d deployed) env(name string) string { return d[name] }

// The timeouts leave room for the charge, which may take three seconds and would not be started otherwise. In the scheduled
// function, recovery has three fifths of the time.
const (
	timeout = 5 * time.Second
	enough  = 20 * time.Second
)

// start starts the function in an emulator, with more variables.
func (d deployed) start(t *testing.T, timeout time.Duration, more ...string) *lambdatest.Environment {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	env := append([]string{childVariable + "=1"}, more...)
	for name, value := range d {
		env = append(env, name+"="+value)
	}
	return lambdatest.Function{Program: self, Timeout: timeout, Env: env}.Start(t)
}

// store is the function's store, in the test's own process.
func (d deployed) store(t *testing.T) (s state.Store) {
	t.Helper()
	if d["PAYMENT_TABLE"] != "" {
		s, err := dynamostore.New(dynamotest.Client(t, d["AWS_ENDPOINT_URL_DYNAMODB"]), d["PAYMENT_TABLE"])
		require.NoError(t, err)
		return s
	}
	var closers []func() error
	s, err := openStore(t.Context(), d.env, &closers)
	require.NoError(t, err)
	for _, closed := range closers {
		t.Cleanup(func() { assert.NoError(t, closed()) })
	}
	return s
}

// entries are what a service has in its books.
func (d deployed) entries(t *testing.T, service string) int {
	t.Helper()
	all, err := ledger.Open(d["PAYMENT_DB"] + "." + service + ".jsonl").Entries()
	require.NoError(t, err)
	return len(all)
}

// deployments are the function on each store that it takes.
var deployments = map[string]func(t *testing.T) deployed{
	"sqlite": func(t *testing.T) deployed {
		return deployed{"PAYMENT_DB": filepath.Join(t.TempDir(), "runs.db")}
	},
	"dynamodb": func(t *testing.T) deployed { // skipped aloud without a server, and failed under CI=true
		proxy, table := dynamotest.Start(t, true), dynamotest.TableName(t)
		require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.Client(t, proxy.URL), table))
		return deployed{"PAYMENT_DB": filepath.Join(t.TempDir(), "books"), "PAYMENT_TABLE": table, "AWS_ENDPOINT_URL_DYNAMODB": proxy.URL,
			"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
	},
}

const tick = `{"version":"0","id":"53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa","detail-type":"Scheduled Event","source":"aws.events",` +
	`"account":"111122223333","time":"2026-11-30T01:00:00Z","region":"eu-west-1","resources":[],"detail":{}}`

// A function dies between the charge and its record, and nothing delivers its message again. The broker was out when
// another order was completed. Both are left to the scheduled function.
func TestTheScheduledFunctionGoesOnForADeadOne(t *testing.T) {
	t.Parallel()
	for name, deploy := range deployments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			store := d.store(t)
			d.completeWithoutRelay(t, store, "order-002")
			dead := d.start(t, timeout, "PAYMENT_CRASH_AFTER=charge_card")
			answer, err := dead.Invoke(t.Context(), json.RawMessage(orderEvent(t)))
			require.NoError(t, err)
			require.Contains(t, string(answer), "Runtime.ExitError")
			require.Equal(t, state.StatusInProgress, recordOf(t, store, "order-001").Status)

			sweep := d.start(t, enough, "PAYMENT_SWEEP=1")
			swept := sweepOnce(t, sweep)
			assert.True(t, swept.Drained)
			assert.Empty(t, recordOf(t, store, "order-002").Outbox.Messages)
			assert.Eventually(t, func() bool {
				return swept.Recovered.Completed == 1 || sweepOnce(t, sweep).Recovered.Completed == 1
			}, 30*time.Second, 200*time.Millisecond, "its lease is no longer than its timeout and half a second")

			assert.Equal(t, sagalambda.Swept{Drained: true}, sweepOnce(t, sweep), "nothing is left")
			for _, no := range []string{"order-001", "order-002"} {
				rec := recordOf(t, store, no)
				assert.Equal(t, state.StatusCompleted, rec.Status)
				assert.Empty(t, rec.Outbox.Messages)
				assert.Equal(t, 1, strings.Count(sweep.Log(), fmt.Sprintf(`"msg":"message_sent","topic":"%s","id":"#%s#%s/`, checkout.Topic, checkout.Operation, no)), sweep.Log())
			}
			for _, service := range []string{"provider", "stock", "points"} {
				assert.Equal(t, 2, d.entries(t, service), service)
			}
		})
	}
}

// completeWithoutRelay leaves an order's message in the outbox.
func (d deployed) completeWithoutRelay(t *testing.T, store state.Store, no string) {
	t.Helper()
	var closers []func() error
	services, err := openServices(t.Context(), d.env, &closers)
	require.NoError(t, err)
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			assert.NoError(t, closers[i]())
		}
	}()
	o, err := saga.New(checkout.New(services), store)
	require.NoError(t, err)
	_, err = o.Run(t.Context(), saga.Key{ID: no}, checkout.Order{OrderNo: no, SKU: "tea-100", Quantity: 1, Amount: 600})
	require.NoError(t, err)
	require.Len(t, recordOf(t, store, no).Outbox.Messages, 1)
}

func recordOf(t *testing.T, store state.Store, no string) *state.Record {
	t.Helper()
	rec, err := store.Get(t.Context(), saga.Key{Operation: checkout.Operation, ID: no}.String())
	require.NoError(t, err)
	return rec
}

func sweepOnce(t *testing.T, e *lambdatest.Environment) (swept sagalambda.Swept) {
	t.Helper()
	answer, err := e.Invoke(t.Context(), json.RawMessage(tick))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(answer, &swept), string(answer))
	return swept
}

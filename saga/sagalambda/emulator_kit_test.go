//go:build linux

package sagalambda_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/internal/lambdatest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// The function of these tests is this test binary. Its environments share a store, and a file into which its effects go.

const (
	// functionTimeout is in whole seconds. The lease is half a second longer, since it is shorter than the default.
	functionTimeout = 3 * time.Second
	placeVariable   = "TSUZUKI_TEST_PLACE"
	marginVariable  = "TSUZUKI_TEST_MARGIN"
)

func init() { function = beFunction }

// task is what the function is sent.
type task struct {
	ID string `json:"id"`
	// Dies is how the first attempt at the second step ends: "stop" is a process that does nothing any more until it is
	// killed, "exit" one that ends when the effect has happened, and "wait" a step that goes on until it is called off.
	Dies string `json:"dies"`
}

// beFunction is the function's main.
func beFunction() int {
	handle, err := newFunction(context.Background(), os.Getenv(childVariable), os.Getenv(placeVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lambda.Start(handle)
	return 0
}

func newFunction(ctx context.Context, dir, place string) (handle any, err error) {
	store, _, err := openPlace(ctx, place)
	if err != nil {
		return nil, err
	}
	margin, err := time.ParseDuration(cmp.Or(os.Getenv(marginVariable), saga.DefaultMargin.String()))
	if err != nil {
		return nil, err
	}
	one := steps.Do("one", func(_ context.Context, r *steps.Run[task]) error { return effect(dir, r) })
	two := steps.Do("two", func(ctx context.Context, r *steps.Run[task]) error {
		if r.Input.Dies == "wait" && !r.Resumed() {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if r.Input.Dies == "stop" && !r.Resumed() {
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			select {} // until the signal has come to every thread
		}
		if err := effect(dir, r); err != nil {
			return err
		}
		if r.Input.Dies == "exit" && !r.Resumed() {
			os.Exit(1)
		}
		return nil
	})
	o, err := saga.New(saga.Define("task", saga.NoResult[task], one, two), store, saga.WithMargin(margin))
	if err != nil {
		return nil, err
	}
	key, err := sagalambda.KeyAt("id")
	if err != nil {
		return nil, err
	}
	return sagalambda.SQS(o, sagalambda.Body[task](key), sagalambda.WithMargin(margin)), nil
}

// effect writes down that a call with the run's derived key has reached the outside.
func effect(dir string, r *steps.Run[task]) error {
	f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.IdempotencyKey())
	return errors.Join(err, f.Close())
}

// openPlace opens a store: "endpoint table" is one on DynamoDB, anything else a SQLite file.
func openPlace(ctx context.Context, place string) (s state.Store, closed func() error, err error) {
	if endpoint, table, ok := strings.Cut(place, " "); ok {
		s, err = dynamostore.New(dynamotest.NewClient(endpoint, http.DefaultTransport), table)
		return s, func() error { return nil }, err
	}
	db, err := sqlite.Open(ctx, place)
	if err != nil {
		return nil, nil, err
	}
	return db, db.Close, nil
}

// site is what the environments share.
type site struct{ dir, place string }

// places are the stores that environments can share.
var places = map[string]func(t *testing.T) *site{"sqlite": fileSite, "dynamodb": tableSite}

func fileSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	return &site{dir, filepath.Join(dir, "runs.db")}
}

// tableSite makes a table. Without a server the test is skipped aloud, and fails under CI=true.
func tableSite(t *testing.T) *site {
	t.Helper()
	proxy, table := dynamotest.Start(t, true), dynamotest.TableName(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.Client(t, proxy.URL), table))
	return &site{t.TempDir(), proxy.URL + " " + table}
}

// environment starts an emulator of its own around this binary, with more variables.
func (s *site) environment(t *testing.T, more ...string) *environment {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return &environment{lambdatest.Function{Program: self, Timeout: functionTimeout,
		Env: append(more, childVariable+"="+s.dir, placeVariable+"="+s.place)}.Start(t)}
}

// store is the shared store, in the test's own process.
func (s *site) store(t *testing.T) state.Store {
	t.Helper()
	store, closed, err := openPlace(t.Context(), s.place)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, closed()) })
	return store
}

func statusOf(t *testing.T, store state.Store, id string) state.Status {
	t.Helper()
	rec, err := store.Get(t.Context(), saga.Key{Operation: "task", ID: id}.String())
	require.NoError(t, err)
	return rec.Status
}

// effects are how often each call with a key reached the outside.
func (s *site) effects(t *testing.T) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.dir, "effects"))
	require.NoError(t, err)
	n := map[string]int{}
	for _, key := range strings.Fields(string(raw)) {
		n[key]++
	}
	return n
}

// environment takes one invocation at a time.
type environment struct{ *lambdatest.Environment }

// errDied is the invocation whose function failed as a whole.
var errDied = errors.New("the function has given no partial answer")

// handle invokes the function with an event, as the event source mapping does.
func (e *environment) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	raw, err := e.Invoke(ctx, event)
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	var answer struct {
		Failures *[]events.SQSBatchItemFailure `json:"batchItemFailures"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.Failures == nil {
		return events.SQSEventResponse{}, fmt.Errorf("%w: %s", errDied, raw)
	}
	return events.SQSEventResponse{BatchItemFailures: *answer.Failures}, nil
}

// deliver invokes the function with a batch, and returns what is to be delivered again.
func (e *environment) deliver(ctx context.Context, batch []events.SQSMessage) (again []events.SQSMessage, err error) {
	answer, err := e.handle(ctx, queue(batch...))
	switch {
	case errors.Is(err, errDied):
		return batch, nil
	case err != nil:
		return nil, err
	}
	failed := map[string]bool{}
	for _, f := range answer.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	for _, m := range batch {
		if failed[m.MessageId] {
			again = append(again, m)
		}
	}
	return again, nil
}

func taskText(t *testing.T, in task) string {
	t.Helper()
	raw, err := json.Marshal(in)
	require.NoError(t, err)
	return string(raw)
}

func taskMessage(t *testing.T, id string, in task) events.SQSMessage {
	t.Helper()
	return events.SQSMessage{MessageId: id, Body: taskText(t, in), EventSourceARN: standardQueue}
}

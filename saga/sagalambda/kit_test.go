package sagalambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// childVariable says, in the environment, that this test binary is to be a function in place of its tests: the emulator
// starts it as one.
const childVariable = "TSUZUKI_TEST_FUNCTION"

// function is what this binary is then. It doesn't return.
var function = func() int { return 64 }

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(function())
	}
	goleak.VerifyTestMain(m)
}

type order struct {
	No     string `json:"no"`
	Amount int64  `json:"amount"`
}

type orderRun = steps.Run[order]

// shop is a saga of two steps whose effects it counts.
type shop struct {
	mu       sync.Mutex
	reserved []string
	charged  []string
	released []string
	// charge is called before the effect of the second step; nil: nothing.
	charge func(ctx context.Context, r *orderRun) error
	// release is called in the compensation of the first; nil: nothing.
	release func() error
}

func (s *shop) note(to *[]string, no string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, no)
}

func (s *shop) definition() *saga.Definition[order, string] {
	reserve := steps.Do("reserve", func(_ context.Context, r *orderRun) error {
		s.note(&s.reserved, r.Input.No)
		return nil
	}).Compensate(func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
		if s.release != nil {
			if err := s.release(); err != nil {
				return err
			}
		}
		s.note(&s.released, r.Input.No)
		return nil
	}).CompensateRetry(steps.RetryPolicy{PerRun: 1})
	charge := steps.New("charge", func(ctx context.Context, r *orderRun) (string, error) {
		if s.charge != nil {
			if err := s.charge(ctx, r); err != nil {
				return "", err
			}
		}
		s.note(&s.charged, r.Input.No)
		return "ch-" + r.Input.No, nil
	}).Compensate(func(context.Context, *orderRun, steps.Outcome[string]) error { return nil }).
		Retry(steps.RetryPolicy{PerRun: 1})
	return saga.Define("checkout", func(_ context.Context, r *orderRun) (string, error) { return charge.Output(r), nil }, reserve, charge)
}

func (s *shop) on(t *testing.T, store state.Store, opts ...saga.Option) *saga.Orchestrator[order, string] {
	t.Helper()
	o, err := saga.New(s.definition(), store, opts...)
	require.NoError(t, err)
	return o
}

// recordOf is the record of the order o-1.
func recordOf(t *testing.T, store state.Store) *state.Record {
	t.Helper()
	rec, err := store.Get(t.Context(), saga.Key{Operation: "checkout", ID: "o-1"}.String())
	require.NoError(t, err)
	return rec
}

// fake is a Runner that does what it is told.
type fake func(ctx context.Context, key saga.Key, in order) (string, error)

func (f fake) Run(ctx context.Context, key saga.Key, in order, _ ...saga.RunOption) (string, error) {
	return f(ctx, key, in)
}

// always is a Runner whose every run ends so.
func always(err error) fake {
	return func(context.Context, saga.Key, order) (string, error) { return "", err }
}

func keyAt(t *testing.T, path string, opts ...sagalambda.KeyOption) *sagalambda.KeyPath {
	t.Helper()
	key, err := sagalambda.KeyAt(path, opts...)
	require.NoError(t, err)
	return key
}

const (
	standardQueue = "arn:aws:sqs:eu-west-1:111122223333:orders"
	fifoQueue     = standardQueue + ".fifo"
)

// text is an order as JSON.
func text(t *testing.T, no string) string {
	t.Helper()
	raw, err := json.Marshal(order{No: no, Amount: 1200})
	require.NoError(t, err)
	return string(raw)
}

// message is an order in a queue; a group makes it one of a FIFO queue.
func message(t *testing.T, id, group, no string) events.SQSMessage {
	t.Helper()
	m := events.SQSMessage{MessageId: id, Body: text(t, no), EventSource: "aws:sqs", EventSourceARN: standardQueue,
		ReceiptHandle: "rh", Attributes: map[string]string{"ApproximateReceiveCount": "1"}}
	if group != "" {
		m.EventSourceARN = fifoQueue
		m.Attributes["MessageGroupId"] = group
	}
	return m
}

func queue(messages ...events.SQSMessage) events.SQSEvent { return events.SQSEvent{Records: messages} }

// byNo makes the key of an order's number.
func byNo(m events.SQSMessage) (key saga.Key, in order, err error) {
	if err = json.Unmarshal([]byte(m.Body), &in); err != nil {
		return key, in, err
	}
	return saga.Key{ID: in.No}, in, nil
}

// returned are the IDs of the messages that are to be delivered again.
func returned(t *testing.T, resp events.SQSEventResponse, err error) []string {
	t.Helper()
	require.NoError(t, err)
	assert.NotNil(t, resp.BatchItemFailures, "an empty list, and not null")
	ids := []string{}
	for _, f := range resp.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

// logged is a log in memory.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) Sync() error { return nil }

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// byKey counts the lines of the orchestrator, by message and the ID in the run's key.
func (l *logged) byKey(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	for line := range strings.Lines(l.text()) {
		var said struct{ Msg, Key string }
		require.NoError(t, json.Unmarshal([]byte(line), &said))
		key, err := state.ParseKey(said.Key)
		require.NoError(t, err, line)
		n[said.Msg+" "+key.ID]++
	}
	return n
}

func (l *logged) logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), l, zap.DebugLevel))
}

var errDeclined = steps.WithCode("card_declined", errors.New("the bank says no"))

package sagalambda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func newStore() *memory.Store { return memory.New() }

func permanent(err error) error { return steps.Permanent(err) }

func TestARecordIsARunAndADuplicateIsNone(t *testing.T) {
	store, shop, log := newStore(), &shop{}, &logged{}
	handle := sagalambda.SQS(shop.on(t, store, saga.WithLogger(log.logger())), byNo)
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2"), message(t, "m3", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	resp, err = handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
	slices.Sort(shop.charged)
	assert.Equal(t, []string{"o-1", "o-2"}, shop.charged)
	assert.Equal(t, state.StatusCompleted, recordOf(t, store).Status)
	assert.Equal(t, map[string]int{"business_operation_executed o-1": 2, "business_operation_executed o-2": 2, "job_skipped o-1": 2}, log.byKey(t),
		"a line for each step of each key, and one for each duplicate")
}

// gauge is a Runner that tells how many of its runs are at work, and how many were at once with one key.
type gauge struct {
	at, most atomic.Int64
	enough   int64
	full     chan struct{}
	once     sync.Once
	mu       sync.Mutex
	keys     map[string]int
	clash    atomic.Bool
	order    []string
	fails    map[string]error
}

func newGauge(enough int64) *gauge {
	return &gauge{enough: enough, full: make(chan struct{}), keys: map[string]int{}, fails: map[string]error{}}
}

func (g *gauge) Run(ctx context.Context, key saga.Key, in order, _ ...saga.RunOption) (string, error) {
	g.mu.Lock()
	g.keys[key.ID]++
	if g.keys[key.ID] > 1 {
		g.clash.Store(true)
	}
	g.order = append(g.order, fmt.Sprintf("%s/%d", in.No, in.Amount))
	g.mu.Unlock()
	n := g.at.Add(1)
	for old := g.most.Load(); n > old && !g.most.CompareAndSwap(old, n); old = g.most.Load() {
	}
	if n == g.enough {
		g.once.Do(func() { close(g.full) })
	}
	if g.enough > 0 {
		select {
		case <-g.full:
		case <-ctx.Done():
		}
	}
	g.at.Add(-1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[key.ID]--
	return "", g.fails[key.ID]
}

func TestRecordsRunConcurrentlyUpToTheLimit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g := newGauge(3)
	var messages []events.SQSMessage
	for i := range 12 {
		messages = append(messages, message(t, fmt.Sprint("m", i), "", fmt.Sprint("o-", i)))
	}
	resp, err := sagalambda.SQS(g, byNo, sagalambda.WithConcurrency(3))(ctx, queue(messages...))
	assert.Empty(t, returned(t, resp, err))
	require.NoError(t, ctx.Err(), "three were at work at once")
	assert.EqualValues(t, 3, g.most.Load())
	assert.Len(t, g.order, 12)
}

func TestRecordsOfOneKeyNeverRunAtOnce(t *testing.T) {
	g := newGauge(0)
	var messages []events.SQSMessage
	for i := range 40 {
		messages = append(messages, message(t, fmt.Sprint("m", i), "", fmt.Sprint("o-", i%4)))
	}
	resp, err := sagalambda.SQS(g, byNo)(t.Context(), queue(messages...))
	assert.Empty(t, returned(t, resp, err))
	assert.Len(t, g.order, 40)
	assert.False(t, g.clash.Load())
}

func TestBehindAnInterruptedRecordThoseOfItsKeyAreNotTriedAgainAtOnce(t *testing.T) {
	g := newGauge(0)
	g.fails["o-1"] = &saga.Error{Kind: saga.ErrInterrupted}
	resp, err := sagalambda.SQS(g, byNo)(t.Context(), queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2"), message(t, "m3", "", "o-1")))
	assert.Equal(t, []string{"m1", "m3"}, returned(t, resp, err))
	assert.Len(t, g.order, 2)
}

func TestARecordWithOtherContentDoesNotHoldBackTheRightOne(t *testing.T) {
	shop := &shop{}
	o := shop.on(t, newStore())
	_, err := o.Run(t.Context(), saga.Key{ID: "o-1"}, order{No: "o-1", Amount: 1200})
	require.NoError(t, err)
	tampered := message(t, "m1", "", "o-1")
	tampered.Body = `{"no":"o-1","amount":1}`
	resp, err := sagalambda.SQS(o, byNo)(t.Context(), queue(tampered, message(t, "m2", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	assert.Equal(t, []string{"o-1"}, shop.charged)
}

func TestAFIFOGroupStopsAtItsFirstFailure(t *testing.T) {
	g := newGauge(0)
	g.fails["a-2"] = &saga.Error{Kind: saga.ErrInterrupted}
	g.fails["b-1"] = &saga.Error{Kind: saga.ErrFailed}
	handle := sagalambda.SQS(g, byNo)
	resp, err := handle(t.Context(), queue(
		message(t, "m1", "a", "a-1"), message(t, "m2", "b", "b-1"), message(t, "m3", "a", "a-2"),
		message(t, "m4", "a", "a-3"), message(t, "m5", "b", "b-2"), message(t, "m6", "a", "a-4")))
	assert.Equal(t, []string{"m3", "m4", "m6"}, returned(t, resp, err), "the failure, and all that follow of its group")
	assert.NotContains(t, g.order, "a-3/1200")
	assert.NotContains(t, g.order, "a-4/1200")
	assert.Contains(t, g.order, "b-2/1200", "a failure for good is acknowledged, and stops nothing")
	assert.Less(t, slices.Index(g.order, "a-1/1200"), slices.Index(g.order, "a-2/1200"))
	assert.Less(t, slices.Index(g.order, "b-1/1200"), slices.Index(g.order, "b-2/1200"))
}

func TestAMalformedRecordStopsItsFIFOGroup(t *testing.T) {
	broken := message(t, "m1", "a", "a-1")
	broken.Body = "{"
	g := newGauge(0)
	event := queue(broken, message(t, "m2", "a", "a-2"), message(t, "m3", "b", "b-1"))
	resp, err := sagalambda.SQS(g, byNo)(t.Context(), event)
	assert.Equal(t, []string{"m1", "m2"}, returned(t, resp, err))
	assert.Equal(t, []string{"b-1/1200"}, g.order)
	resp, err = sagalambda.SQS(g, byNo, sagalambda.WithMalformed(sagalambda.Acknowledge))(t.Context(), event)
	assert.Empty(t, returned(t, resp, err), "acknowledged, it stops nothing")
}

func TestAStandardQueuesGroupsHaveNoOrder(t *testing.T) {
	g := newGauge(0)
	g.fails["o-1"] = &saga.Error{Kind: saga.ErrInterrupted}
	one, two := message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2")
	one.Attributes["MessageGroupId"], two.Attributes["MessageGroupId"] = "tenant-a", "tenant-a"
	resp, err := sagalambda.SQS(g, byNo)(t.Context(), queue(one, two))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	assert.Len(t, g.order, 2)
}

func TestAKeyInSeveralGroupsRunsOnceAtATimeAndInEachGroupsOrder(t *testing.T) {
	for range 20 {
		g := newGauge(0)
		var messages []events.SQSMessage
		for i := range 12 {
			m := message(t, fmt.Sprint("m", i), fmt.Sprint("g", i%3), "shared")
			if i%2 == 0 {
				m.Body = text(t, fmt.Sprint("o-", i))
			}
			messages = append(messages, m)
		}
		resp, err := sagalambda.SQS(g, byNo)(t.Context(), queue(messages...))
		assert.Empty(t, returned(t, resp, err))
		assert.False(t, g.clash.Load())
		assert.Len(t, g.order, 12)
	}
}

func TestAMessageWithoutIDFailsTheEvent(t *testing.T) {
	_, err := sagalambda.SQS(always(saga.ErrInterrupted), byNo)(t.Context(), queue(message(t, "", "", "o-1"), message(t, "m2", "", "o-2")))
	require.ErrorContains(t, err, "2 of 2 records")
	resp, err := sagalambda.SQS(always(nil), byNo)(t.Context(), queue(message(t, "", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
}

func TestWithoutPartialResponsesTheWholeEventFails(t *testing.T) {
	g := newGauge(0)
	g.fails["o-2"] = errors.New("s3cret")
	handle := sagalambda.SQS(g, byNo, sagalambda.WithWholeEvent())
	_, err := handle(t.Context(), queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2")))
	require.ErrorContains(t, err, "1 of 2 records")
	assert.NotContains(t, err.Error(), "s3cret")
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Empty(t, returned(t, resp, err))
}

func TestAnEmptyEvent(t *testing.T) {
	resp, err := sagalambda.SQS(always(nil), byNo)(t.Context(), queue())
	assert.Empty(t, returned(t, resp, err))
}

func TestOptionsThatCantWorkFailEveryEvent(t *testing.T) {
	for name, handle := range map[string]func(context.Context, events.SQSEvent) (events.SQSEventResponse, error){
		"concurrency": sagalambda.SQS(always(nil), byNo, sagalambda.WithConcurrency(0)),
		"margin":      sagalambda.SQS(always(nil), byNo, sagalambda.WithMargin(-1)),
		"logger":      sagalambda.SQS(always(nil), byNo, sagalambda.WithLogger(nil)),
		"disposition": sagalambda.SQS(always(nil), byNo, sagalambda.WithFailed(nil)),
		"runner":      sagalambda.SQS[order, string](nil, byNo),
		"request":     sagalambda.SQS[order, string](always(nil), nil),
	} {
		_, err := handle(t.Context(), queue(message(t, "m1", "", "o-1")))
		require.ErrorContains(t, err, "sagalambda: ", name)
	}
	log := &logged{}
	sagalambda.SQS(always(nil), byNo, sagalambda.WithConcurrency(0), nil, sagalambda.WithLogger(log.logger()))
	assert.Contains(t, log.text(), "WithConcurrency(0)", "told at once, whatever the order of the options")
}

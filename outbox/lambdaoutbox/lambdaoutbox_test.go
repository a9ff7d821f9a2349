package lambdaoutbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/lambdaoutbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func server(t *testing.T, function string, opts ...lambdaoutbox.Option) (*brokertest.Lambda, *lambdaoutbox.Publisher) {
	t.Helper()
	s := brokertest.NewLambda(t, "notify", "notify:live", "audit")
	p, err := lambdaoutbox.New(t.Context(), lambda.NewFromConfig(brokertest.Config(t, s.URL)), function, opts...)
	require.NoError(t, err)
	return s, p
}

func TestNewAsksForEveryFunction(t *testing.T) {
	s := brokertest.NewLambda(t, "notify")
	client := lambda.NewFromConfig(brokertest.Config(t, s.URL))
	_, err := lambdaoutbox.New(t.Context(), nil, "notify")
	require.Error(t, err)
	_, err = lambdaoutbox.New(t.Context(), client, "")
	require.ErrorContains(t, err, "no target")
	_, err = lambdaoutbox.New(t.Context(), client, "notify", lambdaoutbox.WithConcurrency(0))
	require.Error(t, err)
	_, err = lambdaoutbox.New(t.Context(), client, "notify", lambdaoutbox.WithFunction("t", "gone"))
	require.ErrorContains(t, err, "function gone")
	assert.Empty(t, s.Invocations(), "the check starts nothing")
}

func TestFunctionsGetTheEnvelope(t *testing.T) {
	s, p := server(t, "notify", lambdaoutbox.WithFunction("audit", "audit"))
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "a", 0, outbox.Message{Type: "order.created", Body: map[string]int{"n": 1}}),
		brokertest.Message(t, "b", 0, outbox.Message{Topic: "audit", Body: []byte(strings.Repeat("x", 300_000)), ContentType: "text/plain"}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "sent", "b/0": "sent"}, brokertest.Told(res))
	got := map[string]brokertest.Invocation{}
	for _, in := range s.Invocations() {
		got[in.Function] = in
	}
	assert.JSONEq(t, `{"id":"#shop#a/notify/0","topic":"orders","key":"#shop#a","type":"order.created","time":"2026-11-29T12:00:00Z",
		"content_type":"application/json","body":{"n":1}}`, got["notify"].Payload)
	assert.Empty(t, got["notify"].Execution)
	assert.Greater(t, len(got["audit"].Payload), 300_000)
}

func TestOneLaneIsHandedOverInOrder(t *testing.T) {
	s, p := server(t, "notify")
	s.Fail(func(in brokertest.Invocation) (int, string) {
		if strings.Contains(in.Payload, "#b/notify/2") {
			return 400, "InvalidRequestContentException"
		}
		return 0, ""
	})
	var msgs []outbox.Message
	for i := range 5 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{}), brokertest.Message(t, "b", i, outbox.Message{}))
	}
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	got := brokertest.Told(res)
	assert.Equal(t, "refused", got["b/2"])
	assert.Equal(t, "held", got["b/3"])
	var order []string
	for _, in := range s.Invocations() {
		var e struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(in.Payload), &e))
		if strings.Contains(e.ID, "#a/") {
			order = append(order, e.ID)
		}
	}
	require.Len(t, order, 5)
	for i, id := range order {
		assert.Equal(t, fmt.Sprintf("#shop#a/notify/%d", i), id)
	}
	assert.Len(t, s.Invocations(), 7)
}

func TestDurableExecutionStartsOnce(t *testing.T) {
	s, p := server(t, "notify:live", lambdaoutbox.WithDurableExecutions())
	m := brokertest.Message(t, strings.Repeat("long", 100), 0, outbox.Message{})
	for range 2 {
		res, err := p.Publish(t.Context(), []outbox.Message{m})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
	}
	require.Len(t, s.Invocations(), 1)
	assert.Regexp(t, "^[a-z2-7]{52}$", s.Invocations()[0].Execution)

	// A later version of the program that spells the event differently: it has been delivered all the same.
	other := func(m outbox.Message) (outbox.Encoded, error) { return outbox.Encoded{Body: []byte(`{"v":2}`)}, nil }
	p, err := lambdaoutbox.New(t.Context(), lambda.NewFromConfig(brokertest.Config(t, s.URL)), "notify:live",
		lambdaoutbox.WithDurableExecutions(), lambdaoutbox.WithEncoder(other))
	require.NoError(t, err)
	res, err := p.Publish(t.Context(), []outbox.Message{m})
	require.NoError(t, err)
	assert.NoError(t, res[0].Err)
	assert.Len(t, s.Invocations(), 1)
}

func TestErrors(t *testing.T) {
	msgs := []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "a", 1, outbox.Message{})}
	for code, status := range map[string]int{"TooManyRequestsException": 429, "ServiceException": 500, "ResourceConflictException": 409, "EC2ThrottledException": 502} {
		s, p := server(t, "notify")
		var calls atomic.Int32
		s.Fail(func(brokertest.Invocation) (int, string) { calls.Add(1); return status, code })
		res, err := p.Publish(t.Context(), msgs)
		require.ErrorContains(t, err, code)
		for _, r := range res {
			assert.Error(t, r.Err)
			assert.False(t, r.Refused)
		}
		assert.EqualValues(t, 1, calls.Load(), "nothing more is tried")
	}
	for code, status := range map[string]int{"ResourceNotFoundException": 404, "AccessDeniedException": 403} {
		s, p := server(t, "notify")
		s.Fail(func(brokertest.Invocation) (int, string) { return status, code })
		res, err := p.Publish(t.Context(), msgs)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"a/0": "refused", "a/1": "held"}, brokertest.Told(res))
	}
}

func TestWhatLambdaCannotTakeIsRefusedHere(t *testing.T) {
	_, p := server(t, "", lambdaoutbox.WithFunction("orders", "notify"))
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "huge", 0, outbox.Message{Body: []byte(strings.Repeat("x", 1<<20))}),
		brokertest.Message(t, "topic", 0, outbox.Message{Topic: "unknown"}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"huge/0": "refused", "topic/0": "refused"}, brokertest.Told(res))
	for _, enc := range []outbox.Encoder{
		outbox.Plain, // has attributes
		func(outbox.Message) (outbox.Encoded, error) { return outbox.Encoded{Body: []byte("no JSON")}, nil },
	} {
		s, p := server(t, "notify", lambdaoutbox.WithEncoder(enc))
		res, err := p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
		require.NoError(t, err)
		assert.True(t, res[0].Refused)
		assert.Empty(t, s.Invocations())
	}
}

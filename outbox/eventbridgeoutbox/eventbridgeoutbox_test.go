package eventbridgeoutbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/eventbridgeoutbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func server(t *testing.T, opts ...eventbridgeoutbox.Option) (*brokertest.EventBridge, *eventbridgeoutbox.Publisher) {
	t.Helper()
	s := brokertest.NewEventBridge(t, "default", "audit")
	p, err := eventbridgeoutbox.New(t.Context(), eventbridge.NewFromConfig(brokertest.Config(t, s.URL)), "default", "com.example.shop", opts...)
	require.NoError(t, err)
	return s, p
}

func TestNewAsksForEveryBus(t *testing.T) {
	s := brokertest.NewEventBridge(t, "default")
	client := eventbridge.NewFromConfig(brokertest.Config(t, s.URL))
	_, err := eventbridgeoutbox.New(t.Context(), nil, "default", "shop")
	require.Error(t, err)
	_, err = eventbridgeoutbox.New(t.Context(), client, "", "shop")
	require.ErrorContains(t, err, "no target")
	_, err = eventbridgeoutbox.New(t.Context(), client, "default", "shop", eventbridgeoutbox.WithEncoder(nil))
	require.Error(t, err)
	for _, source := range []string{"", "aws.shop", strings.Repeat("x", 257)} {
		_, err = eventbridgeoutbox.New(t.Context(), client, "default", source)
		require.ErrorContains(t, err, "source")
	}
	_, err = eventbridgeoutbox.New(t.Context(), client, "default", "shop", eventbridgeoutbox.WithBus("t", "gone"))
	require.ErrorContains(t, err, "bus gone")
}

func TestEventsCarryTheEnvelope(t *testing.T) {
	s, p := server(t, eventbridgeoutbox.WithBus("audit", "audit"))
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "a", 0, outbox.Message{Type: "order.created", Body: map[string]int{"n": 1}, Attributes: map[string]string{"city": "東京"}}),
		brokertest.Message(t, "a", 1, outbox.Message{Topic: "audit", Body: []byte{0xff}}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "sent", "a/1": "sent"}, brokertest.Told(res))
	got := s.Events()
	require.Len(t, got, 2)
	assert.Len(t, s.Requests(), 1, "buses share a request")
	assert.Equal(t, "default", got[0].EventBusName)
	assert.Equal(t, "com.example.shop", got[0].Source)
	assert.Equal(t, "order.created", got[0].DetailType)
	assert.InDelta(t, 1795953600, got[0].Time, 0)
	assert.JSONEq(t, `{"id":"#shop#a/notify/0","topic":"orders","key":"#shop#a","type":"order.created","time":"2026-11-29T12:00:00Z",
		"content_type":"application/json","attributes":{"city":"東京"},"body":{"n":1}}`, got[0].Detail)
	assert.Equal(t, "audit", got[1].EventBusName)
	assert.Equal(t, "audit", got[1].DetailType, "the topic stands in for the type")
	assert.Contains(t, got[1].Detail, `"body_base64":"/w=="`)
}

func TestTensAndAMegabyte(t *testing.T) {
	s, p := server(t)
	var msgs []outbox.Message
	for i := range 25 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{}))
	}
	for i := range 5 {
		msgs = append(msgs, brokertest.Message(t, fmt.Sprint("big", i), 0, outbox.Message{Body: []byte(strings.Repeat("x", 300<<10)), ContentType: "text/plain"}))
	}
	msgs = append(msgs, brokertest.Message(t, "huge", 0, outbox.Message{Body: []byte(strings.Repeat("x", 1<<20)), ContentType: "text/plain"}))
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	got := brokertest.Told(res)
	require.Len(t, got, 31)
	assert.Equal(t, "refused", got["huge/0"])
	assert.Len(t, s.Events(), 30)
	for i, body := range s.Events()[:25] {
		var e struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(body.Detail), &e))
		assert.Equal(t, fmt.Sprintf("#shop#a/notify/%d", i), e.ID)
	}
}

func TestEntriesFailOnTheirOwn(t *testing.T) {
	s, p := server(t)
	s.FailEntries(func(e brokertest.Event) string {
		switch {
		case strings.Contains(e.Detail, "#a/notify/0"):
			return "ThrottlingException"
		case strings.Contains(e.Detail, "#b/notify/0"):
			return "InternalFailure"
		case strings.Contains(e.Detail, "#c/notify/0"):
			return "NotAuthorizedForDetailTypeException"
		}
		return ""
	})
	var msgs []outbox.Message
	for _, run := range []string{"a", "b", "c", "d"} {
		msgs = append(msgs, brokertest.Message(t, run, 0, outbox.Message{}))
	}
	for i := range 8 {
		msgs = append(msgs, brokertest.Message(t, "a", i+1, outbox.Message{}))
	}
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	got := brokertest.Told(res)
	assert.Equal(t, "failed", got["a/0"])
	assert.Equal(t, "failed", got["b/0"])
	assert.Equal(t, "refused", got["c/0"])
	assert.Equal(t, "sent", got["d/0"])
	assert.Equal(t, "held", got["a/8"], "a later request sends nothing behind a failed message")
}

func TestErrorsOfAWholeRequest(t *testing.T) {
	msgs := []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{}), brokertest.Message(t, "b", 0, outbox.Message{})}
	for code, status := range map[string]int{"ThrottlingException": 400, "InternalFailure": 500, "ExpiredTokenException": 400} {
		s, p := server(t)
		s.FailRequests(func() (int, string) { return status, code })
		res, err := p.Publish(t.Context(), msgs)
		require.ErrorContains(t, err, code)
		assert.Empty(t, res)
	}
	s, p := server(t)
	s.FailRequests(func() (int, string) { return 400, "AccessDeniedException" })
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "refused", "b/0": "refused"}, brokertest.Told(res))
}

func TestWhatEventBridgeCannotTakeIsRefusedHere(t *testing.T) {
	_, p := server(t, eventbridgeoutbox.WithEncoder(outbox.Plain))
	res, err := p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.NoError(t, err)
	assert.True(t, res[0].Refused)
	assert.ErrorContains(t, res[0].Err, "outbox.Envelope")

	bare := func(m outbox.Message) (outbox.Encoded, error) { return outbox.Encoded{Body: m.Bytes()}, nil }
	s, p := server(t, eventbridgeoutbox.WithEncoder(bare))
	res, err = p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "list", 0, outbox.Message{Body: []int{1}}), brokertest.Message(t, "broken", 0, outbox.Message{Body: []byte("{")}),
		brokertest.Message(t, "long", 0, outbox.Message{Body: []byte("{}"), Type: strings.Repeat("ü", 129)}),
		brokertest.Message(t, "fine", 0, outbox.Message{Body: []byte(" {}"), Type: strings.Repeat("ü", 128)}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"list/0": "refused", "broken/0": "refused", "long/0": "refused", "fine/0": "sent"}, brokertest.Told(res))
	assert.Len(t, s.Events(), 1)

	s2 := brokertest.NewEventBridge(t, "audit")
	p, err = eventbridgeoutbox.New(t.Context(), eventbridge.NewFromConfig(brokertest.Config(t, s2.URL)), "", "shop", eventbridgeoutbox.WithBus("audit", "audit"))
	require.NoError(t, err)
	res, err = p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "refused"}, brokertest.Told(res), "no bus for the topic")
}

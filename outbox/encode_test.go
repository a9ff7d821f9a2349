package outbox_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

func emitted(t *testing.T, m outbox.Message) outbox.Message {
	t.Helper()
	enc, err := m.Encode()
	require.NoError(t, err)
	enc.ID, enc.Time = "acme#shop#1/notify/0", time.Date(2026, 11, 29, 12, 0, 0, 250_000_000, time.UTC)
	return enc
}

func TestPlain(t *testing.T) {
	m := emitted(t, outbox.Message{Topic: "orders", Body: map[string]int{"n": 1}, Attributes: map[string]string{"a": "b", "message-id": "mine"}})
	m.Key = "acme#shop#1"
	e, err := outbox.Plain(m)
	require.NoError(t, err)
	assert.Equal(t, outbox.Encoded{Body: []byte(`{"n":1}`), ContentType: "application/json", Attributes: map[string]string{
		"a": "b", "message-id": m.ID, "message-topic": "orders",
	}}, e)
	assert.Equal(t, "mine", m.Attributes["message-id"], "the message itself is left alone")

	m.Key, m.Type, m.Attributes = "o-1", "order.created", nil
	e, err = outbox.Plain(m)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"message-id": m.ID, "message-topic": "orders", "message-type": "order.created", "message-key": "o-1",
	}, e.Attributes)
}

func TestEnvelope(t *testing.T) {
	for name, tc := range map[string]struct {
		body        any
		contentType string
		want        string
	}{
		"json":             {map[string]any{"n": json.Number("9007199254740993")}, "", `"content_type":"application/json","body":{"n":9007199254740993}`},
		"vendor json":      {[]byte(`["<&>"]`), "application/vnd.shop+json; charset=utf-8", `"content_type":"application/vnd.shop+json; charset=utf-8","body":["<&>"]`},
		"text":             {[]byte("grüße"), "text/plain", `"content_type":"text/plain","body":"grüße"`},
		"bytes":            {[]byte{0xff, 0}, "", `"content_type":"application/octet-stream","body_base64":"/wA="`},
		"text that is not": {[]byte{0xff}, "text/plain", `"content_type":"text/plain","body_base64":"/w=="`},
		"json that is not": {[]byte(`{`), "application/json", `"content_type":"application/json","body_base64":"ew=="`},
	} {
		t.Run(name, func(t *testing.T) {
			m := emitted(t, outbox.Message{Topic: "orders", Key: "o-1", Type: "order.created", Body: tc.body, ContentType: tc.contentType})
			e, err := outbox.Envelope(m)
			require.NoError(t, err)
			assert.Equal(t, `{"id":"acme#shop#1/notify/0","topic":"orders","key":"o-1","type":"order.created","time":"2026-11-29T12:00:00.25Z",`+tc.want+`}`, string(e.Body))
			assert.Equal(t, "application/json", e.ContentType)
			assert.Empty(t, e.Attributes)
		})
	}
}

func TestCloudEventsStructured(t *testing.T) {
	enc, err := outbox.CloudEventsStructured("https://example.com/shop")
	require.NoError(t, err)
	e, err := enc(emitted(t, outbox.Message{
		Topic: "orders", Key: "o-1", Type: "com.example.order.created", Body: json.RawMessage(`{"amount": 12.50}`),
		Attributes: map[string]string{"Trace-Parent": "00-ab", "source": "web", "größe": "ü €"},
	}))
	require.NoError(t, err)
	assert.Equal(t, outbox.ContentTypeCloudEvents, e.ContentType)
	assert.Empty(t, e.Attributes)
	assert.JSONEq(t, `{"specversion":"1.0","id":"acme#shop#1/notify/0","source":"https://example.com/shop","type":"com.example.order.created",
		"subject":"o-1","partitionkey":"o-1","time":"2026-11-29T12:00:00.25Z","datacontenttype":"application/json",
		"traceparent":"00-ab","xsource":"web","gre":"ü €","data":{"amount":12.50}}`, string(e.Body))
	assert.Contains(t, string(e.Body), "12.50", "numbers keep their spelling")

	e, err = enc(emitted(t, outbox.Message{Topic: "orders", Body: []byte{0xff, 0xfe}}))
	require.NoError(t, err)
	assert.JSONEq(t, `{"specversion":"1.0","id":"acme#shop#1/notify/0","source":"https://example.com/shop","type":"orders",
		"time":"2026-11-29T12:00:00.25Z","datacontenttype":"application/octet-stream","data_base64":"//4="}`, string(e.Body))

	e, err = enc(emitted(t, outbox.Message{Topic: "orders", Body: []byte("a <b>"), ContentType: "text/html"}))
	require.NoError(t, err)
	assert.Contains(t, string(e.Body), `"data":"a <b>"`)
}

func TestCloudEventsBinary(t *testing.T) {
	enc, err := outbox.CloudEventsBinary("/shop")
	require.NoError(t, err)
	m := emitted(t, outbox.Message{Topic: "orders", Key: "o-1", Body: []byte{1, 2}, ContentType: "application/x-protobuf", Attributes: map[string]string{"tracestate": "x"}})
	e, err := enc(m)
	require.NoError(t, err)
	assert.Equal(t, outbox.Encoded{Body: []byte{1, 2}, ContentType: "application/x-protobuf", Attributes: map[string]string{
		"ce-specversion": "1.0", "ce-id": m.ID, "ce-source": "/shop", "ce-type": "orders", "ce-subject": "o-1",
		"ce-partitionkey": "o-1", "ce-time": "2026-11-29T12:00:00.25Z", "ce-tracestate": "x",
	}}, e)
}

func TestCloudEventsRefuseWhatTheyCannotSay(t *testing.T) {
	for _, source := range []string{"", "%zz"} {
		_, err := outbox.CloudEventsStructured(source)
		require.Error(t, err)
		_, err = outbox.CloudEventsBinary(source)
		require.Error(t, err)
	}
	structured, err := outbox.CloudEventsStructured("/shop")
	require.NoError(t, err)
	binary, err := outbox.CloudEventsBinary("/shop")
	require.NoError(t, err)
	for name, m := range map[string]outbox.Message{
		"no name left":       {Attributes: map[string]string{"ключ": "v"}},
		"same name twice":    {Attributes: map[string]string{"a-b": "v", "ab": "v"}},
		"control characters": {Attributes: map[string]string{"a": "secret\n"}},
		"control in the key": {Key: "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			m.Topic = "t"
			for _, enc := range []outbox.Encoder{structured, binary} {
				_, err := enc(emitted(t, m))
				require.ErrorIs(t, err, outbox.ErrInvalidMessage)
				assert.NotContains(t, err.Error(), "secret", "no values in errors")
			}
		})
	}
}

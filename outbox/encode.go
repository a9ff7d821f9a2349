package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"strings"
	"time"
	"unicode/utf8"
)

// Encoded is a message in the form in which it travels.
type Encoded struct {
	// Body is what the consumer gets as content.
	Body []byte
	// ContentType of Body.
	ContentType string
	// Attributes travel beside the body, as message attributes or HTTP headers. A transport that has none refuses a
	// message with attributes.
	Attributes map[string]string
}

// Encoder brings a message into the form in which it travels. It is pure: the same message gives the same result on
// every resend. An error means that the message is refused. The body must not be changed in place.
type Encoder func(Message) (Encoded, error)

// Names of the attributes that [Plain] adds. A message's own attribute of such a name gives way.
const (
	AttributeID    = "message-id"
	AttributeTopic = "message-topic"
	AttributeType  = "message-type"
	AttributeKey   = "message-key"
)

// Plain is the encoder for transports that have attributes: the body as it is, and beside it the message's attributes,
// its ID, topic, type if it has one, and ordering key if that is another than the run's own.
func Plain(m Message) (Encoded, error) {
	attrs := maps.Clone(m.Attributes)
	if attrs == nil {
		attrs = make(map[string]string, 4)
	}
	attrs[AttributeID], attrs[AttributeTopic] = m.ID, m.Topic
	if m.Type != "" {
		attrs[AttributeType] = m.Type
	}
	if !ownKey(m) {
		attrs[AttributeKey] = m.Key
	}
	return Encoded{Body: m.Bytes(), ContentType: m.ContentType, Attributes: attrs}, nil
}

// ownKey tells whether the ordering key is the run's own key, with which every message ID starts.
func ownKey(m Message) bool {
	return m.Key == "" || strings.HasPrefix(m.ID, m.Key+"/")
}

type envelope struct {
	ID          string            `json:"id"`
	Topic       string            `json:"topic"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type,omitempty"`
	Time        string            `json:"time,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Body        json.RawMessage   `json:"body,omitempty"`
	BodyBase64  []byte            `json:"body_base64,omitempty"`
}

// Envelope is the encoder for transports that carry JSON and nothing beside it: a JSON object with the members id, topic,
// key, type, time (RFC 3339), content_type, attributes, and body (the JSON value, or a string for other text) or
// body_base64. Members without a value are left out.
func Envelope(m Message) (Encoded, error) {
	e := envelope{
		ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Time: timestamp(m.Time),
		ContentType: m.ContentType, Attributes: m.Attributes,
	}
	value, text := jsonBody(m)
	if text {
		e.Body = value
	} else {
		e.BodyBase64 = m.Bytes()
	}
	body, err := marshal(e)
	if err != nil {
		return Encoded{}, fmt.Errorf("outbox: message %s: encode the envelope: %w", m.ID, err)
	}
	return Encoded{Body: body, ContentType: "application/json"}, nil
}

// jsonBody is the body as a JSON value: itself if it is JSON by its content type and in fact, a string if it is other
// text. false: it is neither, and has to travel as base64.
func jsonBody(m Message) (json.RawMessage, bool) {
	body := m.Bytes()
	kind, _, _ := mime.ParseMediaType(m.ContentType)
	switch {
	case kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json"):
		if json.Valid(body) {
			return body, true
		}
	case strings.HasPrefix(kind, "text/") || kind == "application/xml" || strings.HasSuffix(kind, "+xml"):
		if utf8.Valid(body) {
			s, err := marshal(string(body))
			return s, err == nil
		}
	}
	return nil, false
}

func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// marshal is json.Marshal without the escapes that are meant for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

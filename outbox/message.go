package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tsuzuki-go/tsuzuki/internal/tame"
)

// Limits of what one attempt at a step may emit.
const (
	// MaxMessages is how many messages one step may emit.
	MaxMessages = 100
	// MaxBytes is how many bytes the messages of one step may take together: bodies, topics, keys and attributes.
	MaxBytes = 1 << 20
)

// ErrInvalidMessage is the class of every error about a message that can't be emitted.
var ErrInvalidMessage = errors.New("outbox: invalid message")

// Message is one message to the outside. A step fills in Topic and Body and what else it needs; the library sets ID.
// Keyed literals only.
type Message struct {
	_ struct{}

	// ID is "<derived key of the step's attempt>/<index>": the same on every resend, unique per run. Set by the library;
	// what a step puts there is overwritten.
	ID string
	// Topic says where the message goes. What it means is the publisher's business: a queue, a topic, an event bus.
	// It must not be empty.
	Topic string
	// Key is the ordering key within the topic, such as an order number. Empty: the run's own key stands in.
	Key string
	// Type names what happened, such as "order.created". May be empty.
	Type string
	// Body is the content. When emitted, []byte and json.RawMessage are taken as they are and anything else is encoded as
	// JSON. A publisher always gets []byte.
	Body any
	// ContentType of Body. Empty: "application/json" for an encoded body, "application/octet-stream" for []byte.
	ContentType string
	// Attributes travel beside the body, as headers or message attributes.
	Attributes map[string]string
	// Time is when the message was recorded, to the millisecond and in UTC: the moment of the commit that made it due. It
	// is what a relay's lag is counted from. Set by the library; what a step puts there is overwritten.
	Time time.Time
}

// Bytes is the encoded body of a message that has been emitted, or nil when it has not been encoded yet.
func (m Message) Bytes() []byte {
	switch b := m.Body.(type) {
	case []byte:
		return b
	case json.RawMessage:
		return b
	}
	return nil
}

// Size is how many bytes the message counts against [MaxBytes]. The body must have been encoded.
func (m Message) Size() int {
	n := len(m.ID) + len(m.Topic) + len(m.Key) + len(m.Type) + len(m.ContentType) + len(m.Bytes())
	for k, v := range m.Attributes {
		n += len(k) + len(v)
	}
	return n
}

// Encode returns the message as it is stored: checked, its body turned into bytes that nobody else holds. Errors are of
// class [ErrInvalidMessage] and never quote the body.
func (m Message) Encode() (Message, error) {
	if m.Topic == "" {
		return Message{}, fmt.Errorf("%w: empty topic", ErrInvalidMessage)
	}
	for _, s := range []string{m.Topic, m.Key, m.Type, m.ContentType} {
		if !utf8.ValidString(s) {
			return Message{}, fmt.Errorf("%w: topic %q: topic, key, type and content type must be valid UTF-8", ErrInvalidMessage, m.Topic)
		}
	}
	attrs := make(map[string]string, len(m.Attributes))
	for k, v := range m.Attributes {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Message{}, fmt.Errorf("%w: topic %q: attribute names must not be empty, names and values must be valid UTF-8", ErrInvalidMessage, m.Topic)
		}
		attrs[k] = v
	}
	if len(attrs) == 0 {
		attrs = nil
	}
	m.Attributes = attrs
	switch b := m.Body.(type) {
	case json.RawMessage:
		if !json.Valid(b) {
			return Message{}, fmt.Errorf("%w: topic %q: the body is a json.RawMessage that is not valid JSON", ErrInvalidMessage, m.Topic)
		}
		m.Body = append([]byte{}, b...)
		m.ContentType = or(m.ContentType, "application/json")
	case []byte:
		m.Body = append([]byte{}, b...)
		m.ContentType = or(m.ContentType, "application/octet-stream")
	default:
		enc, err := encodeBody(m.Body)
		if err != nil {
			return Message{}, fmt.Errorf("%w: topic %q: the body (%T) can't be encoded as JSON: %w", ErrInvalidMessage, m.Topic, m.Body, err)
		}
		m.Body = enc
		m.ContentType = or(m.ContentType, "application/json")
	}
	return m, nil
}

// encodeBody is json.Marshal, but that the methods of v, and of their error, may panic.
func encodeBody(v any) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("panic in a JSON method: %v", p)
		}
	}()
	b, err = json.Marshal(v)
	return b, tame.Error(err)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

package outbox

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// ContentTypeCloudEvents is the content type of a structured CloudEvent.
const ContentTypeCloudEvents = "application/cloudevents+json; charset=UTF-8"

// CloudEventsStructured makes the encoder to CloudEvents 1.0 in structured mode: one JSON object with the event's
// attributes and its data, and nothing beside it.
//
// The event's id is the message's ID, source is the one given (a URI reference), type is the message's type or else its
// topic, subject and the extension partitionkey are its ordering key, time is when it was recorded. The message's own
// attributes become extension attributes: their names in lower case and without what is not a letter of a to z or a
// digit, with an x before a name that CloudEvents has a meaning for. A message is refused whose attribute has no such
// name, or shares it with another, or whose values have control characters.
//
// See the CloudEvents specification 1.0.2 and its JSON event format.
func CloudEventsStructured(source string) (Encoder, error) {
	if err := checkSource(source); err != nil {
		return nil, err
	}
	return func(m Message) (Encoded, error) {
		attrs, err := eventAttributes(m, source)
		if err != nil {
			return Encoded{}, err
		}
		event := make(map[string]any, len(attrs)+2)
		for name, v := range attrs {
			event[name] = v
		}
		if m.ContentType != "" {
			event["datacontenttype"] = m.ContentType
		}
		if value, text := jsonBody(m); text {
			event["data"] = value
		} else {
			event["data_base64"] = m.Bytes()
		}
		body, err := marshal(event)
		if err != nil {
			return Encoded{}, fmt.Errorf("outbox: message %s: encode the CloudEvent: %w", m.ID, err)
		}
		return Encoded{Body: body, ContentType: ContentTypeCloudEvents}, nil
	}, nil
}

// CloudEventsBinary makes the encoder to CloudEvents 1.0 in binary mode: the body as it is, and the event's attributes
// beside it with the prefix "ce-". Which attributes there are, see [CloudEventsStructured]. Over HTTP this is the binary
// content mode of the HTTP protocol binding. SQS and SNS have no binding of their own: there the same names are used.
func CloudEventsBinary(source string) (Encoder, error) {
	if err := checkSource(source); err != nil {
		return nil, err
	}
	return func(m Message) (Encoded, error) {
		attrs, err := eventAttributes(m, source)
		if err != nil {
			return Encoded{}, err
		}
		headers := make(map[string]string, len(attrs))
		for name, v := range attrs {
			headers["ce-"+name] = v
		}
		return Encoded{Body: m.Bytes(), ContentType: m.ContentType, Attributes: headers}, nil
	}, nil
}

func checkSource(source string) error {
	if source == "" {
		return errors.New("outbox: a CloudEvent needs a source, such as https://example.com/shop or /shop")
	}
	if _, err := url.Parse(source); err != nil {
		return fmt.Errorf("outbox: the source of a CloudEvent is a URI reference: %w", err)
	}
	return nil
}

// taken are the names that CloudEvents gives a meaning, and that are set from other fields.
var taken = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "subject": true, "time": true,
	"datacontenttype": true, "data": true, "partitionkey": true,
}

// eventAttributes are the event's context attributes and extensions but datacontenttype.
func eventAttributes(m Message, source string) (map[string]string, error) {
	attrs := map[string]string{"specversion": "1.0", "id": m.ID, "source": source, "type": or(m.Type, m.Topic)}
	if m.Key != "" {
		attrs["subject"], attrs["partitionkey"] = m.Key, m.Key
	}
	if t := timestamp(m.Time); t != "" {
		attrs["time"] = t
	}
	for name, v := range m.Attributes {
		ext := extensionName(name)
		if _, twice := attrs[ext]; ext == "" || twice {
			return nil, fmt.Errorf("%w: message %s: attribute %q has no name of its own as a CloudEvents extension", ErrInvalidMessage, m.ID, name)
		}
		attrs[ext] = v
	}
	for name, v := range attrs {
		if strings.IndexFunc(v, unicode.IsControl) >= 0 {
			return nil, fmt.Errorf("%w: message %s: control characters in the CloudEvents attribute %q", ErrInvalidMessage, m.ID, name)
		}
	}
	return attrs, nil
}

func extensionName(name string) string {
	ext := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, name)
	if taken[ext] {
		return "x" + ext
	}
	return ext
}

// Package attrs holds the rules that SQS and SNS share: what a message body and its attributes may consist of, and the
// form of a FIFO group.
package attrs

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Names of the attributes that are set beside those of the encoder. A message's own attribute of such a name gives way.
const (
	ContentType  = "content-type"
	BodyEncoding = "body-encoding"
)

// Attribute is a string attribute.
type Attribute struct{ Name, Value string }

// Text is a message in the form that SQS and SNS take: text, with string attributes in the order of their names.
type Text struct {
	Body       string
	Attributes []Attribute
	// Size is what the message counts against the services' limits: body, and name, type and value of every attribute.
	Size int
}

// Make checks e and turns it into text. A body that is not text by the services' rule is sent as base64, with the
// attribute body-encoding. An attribute without a value is left out, since the services take none.
func Make(e outbox.Encoded) (Text, error) {
	if len(e.Body) == 0 {
		return Text{}, fmt.Errorf("%w: an empty body, which the service does not take", outbox.ErrInvalidMessage)
	}
	named := maps.Clone(e.Attributes)
	if named == nil {
		named = map[string]string{}
	}
	if e.ContentType != "" {
		named[ContentType] = e.ContentType
	}
	var t Text
	if text(string(e.Body)) {
		delete(named, BodyEncoding)
		t.Body = string(e.Body)
	} else {
		named[BodyEncoding] = "base64"
		t.Body = base64.StdEncoding.EncodeToString(e.Body)
	}
	t.Size = len(t.Body)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		value := named[name]
		if value == "" {
			continue
		}
		if !validName(name) {
			return Text{}, fmt.Errorf("%w: attribute %q: a name has 1 to 256 of A-Z a-z 0-9 _ - and single dots inside, and starts with neither AWS. nor Amazon. as a prefix",
				outbox.ErrInvalidMessage, name)
		}
		if !text(value) {
			return Text{}, fmt.Errorf("%w: attribute %q: characters that the service does not take", outbox.ErrInvalidMessage, name)
		}
		t.Attributes = append(t.Attributes, Attribute{name, value})
		t.Size += len(name) + len("String") + len(value)
	}
	return t, nil
}

// text tells whether s consists of the characters that SQS takes: those of XML 1.0.
func text(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff
	}) < 0
}

func validName(name string) bool {
	lower := strings.ToLower(name)
	if name == "" || len(name) > 256 || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return false
	}
	if name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) < 0
}

// Group is the MessageGroupId of an ordering key: the key itself if the service takes it (1 to 128 printable ASCII
// characters, no space), else "h:" and a hash of it.
func Group(key string) string {
	if key != "" && len(key) <= 128 && !strings.HasPrefix(key, "h:") &&
		strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
		return key
	}
	return "h:" + digest.Short(key, digest.Most)
}

// Deduplication is the MessageDeduplicationId of a message ID.
func Deduplication(id string) string { return digest.Short(id, digest.Most) }

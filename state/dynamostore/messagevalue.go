package dynamostore

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// sequence is a message's place in the order of emission: the revision that the write led to, and its place in it.
type sequence struct {
	revision int64
	index    int
}

func (q sequence) String() string {
	return strconv.FormatInt(q.revision, 10) + "." + strconv.Itoa(q.index)
}

func (q sequence) compare(o sequence) int {
	if q.revision != o.revision {
		return int(max(-1, min(1, q.revision-o.revision)))
	}
	return q.index - o.index
}

// messageKey is a message's key in the outbox map: its ID less the key of the run, which is the partition key already.
func messageKey(runKey, id string) string {
	if rest, ok := strings.CutPrefix(id, runKey); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return "=" + id
}

func messageID(runKey, key string) (string, bool) {
	switch {
	case strings.HasPrefix(key, "/"):
		return runKey + key, true
	case strings.HasPrefix(key, "="):
		return key[1:], true
	}
	return "", false
}

const (
	messageFields = 10
	jsonType      = "application/json"
	noType        = "-"
)

// encodeMessage is the value of a message.
func encodeMessage(m *outbox.Message, q sequence, b base, parked string, body where) string {
	sibling := ""
	if body.sibling {
		sibling = string(siblingMark) + body.writeID
	}
	var v strings.Builder
	v.WriteString(q.String())
	v.WriteByte('|')
	v.Write(appendSpan(nil, b, m.Time, time.Time{}))
	for _, field := range [...]string{m.Topic, m.Key, m.Type} {
		v.WriteByte('|')
		escapeTo(&v, field, "|")
	}
	v.WriteByte('|')
	writeContentType(&v, m.ContentType)
	for _, field := range [...]string{encodeAttributes(m.Attributes), parked, sibling} {
		v.WriteByte('|')
		escapeTo(&v, field, "|")
	}
	v.WriteByte('|')
	if !body.sibling {
		v.Write(m.Bytes())
	}
	return v.String()
}

func writeContentType(v *strings.Builder, contentType string) {
	switch contentType {
	case jsonType:
	case "":
		v.WriteString(noType)
	case noType:
		v.WriteString("%2D")
	default:
		escapeTo(v, contentType, "|")
	}
}

func readContentType(s string) (string, error) {
	switch s {
	case "":
		return jsonType, nil
	case noType:
		return "", nil
	}
	return unescape(s)
}

func encodeAttributes(attributes map[string]string) string {
	if len(attributes) == 0 {
		return ""
	}
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(attributes)) {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(k))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(attributes[k]))
	}
	return b.String()
}

func decodeAttributes(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	attributes := map[string]string{}
	for pair := range strings.SplitSeq(s, "&") {
		k, v, _ := strings.Cut(pair, "=")
		k, errK := url.QueryUnescape(k)
		v, errV := url.QueryUnescape(v)
		if errK != nil || errV != nil {
			return nil, fmt.Errorf("%w: a message's attributes", state.ErrCorrupt)
		}
		attributes[k] = v
	}
	return attributes, nil
}

// storedMessage is a message as it stands in the outbox map.
type storedMessage struct {
	state.OutboxMessage
	key  string // in the map
	seq  sequence
	body where
}

// decodeMessage is the inverse of encodeMessage. A body in a sibling is left empty.
func decodeMessage(runKey, key, value string, b base) (m storedMessage, err error) {
	fields := strings.SplitN(value, "|", messageFields)
	id, ok := messageID(runKey, key)
	if len(fields) != messageFields || !ok {
		return m, fmt.Errorf("%w: the message %q", state.ErrCorrupt, state.Cut(key))
	}
	if m.ContentType, err = readContentType(fields[5]); err != nil {
		return m, err
	}
	for i, f := range fields[:messageFields-1] {
		if fields[i], err = unescape(f); err != nil {
			return m, err
		}
	}
	m.key, m.ID = key, id
	revision, index, _ := strings.Cut(fields[0], ".")
	var errRevision, errIndex error
	m.seq.revision, errRevision = strconv.ParseInt(revision, 10, 64)
	m.seq.index, errIndex = strconv.Atoi(index)
	if errRevision != nil || errIndex != nil {
		return m, fmt.Errorf("%w: the sequence of the message %q", state.ErrCorrupt, state.Cut(key))
	}
	if m.Time, _, err = parseSpan(fields[1], b); err != nil {
		return m, err
	}
	m.Topic, m.Key, m.Type, m.Parked = fields[2], fields[3], fields[4], fields[7]
	if m.Attributes, err = decodeAttributes(fields[6]); err != nil {
		return m, err
	}
	if fields[8] != "" {
		m.body = where{sibling: true, writeID: fields[8][1:]}
		return m, nil
	}
	m.Body = []byte(fields[9])
	return m, nil
}

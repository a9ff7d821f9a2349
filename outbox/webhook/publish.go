package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Publish posts the messages, several at a time, those of one topic and ordering key one after the other. See
// [outbox.Publisher]. Once a URL is found to be down, nothing more is posted to it in this call. The error is that of
// every URL being down.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	entries := make([]entry, len(msgs))
	for i, m := range msgs {
		e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key}
		if e.Payload.url, e.Err = p.routes.Target(m.Topic); e.Err == nil {
			e.Payload.message, e.Err = p.encode(m)
		}
		entries[i] = e
	}
	c := call{p: p, down: map[string]error{}}
	results, err := dispatch.Each(ctx, entries, p.concurrency, c.post)
	if err == nil {
		err = c.outage()
	}
	return results, err
}

// call is what one call of Publish finds out about the URLs.
type call struct {
	p  *Publisher
	mu sync.Mutex
	// down are the URLs that are not taking requests; answered: some URL does.
	down     map[string]error
	answered bool
}

func (c *call) post(ctx context.Context, e entry) (f *dispatch.Failure, whole bool) {
	target := e.Payload.url
	if err := c.isDown(target); err != nil {
		return &dispatch.Failure{Err: err}, false
	}
	req, err := c.p.request(ctx, e)
	if err != nil {
		return &dispatch.Failure{Err: err, Refused: errors.Is(err, outbox.ErrInvalidMessage)}, false
	}
	resp, err := c.p.client.Do(req)
	if err != nil {
		err = fmt.Errorf("webhook: post: %w", unquoted(err, target))
		if ctx.Err() == nil {
			c.note(target, err)
		}
		return &dispatch.Failure{Err: err}, ctx.Err() != nil
	}
	discard(resp)
	f = judge(resp, target)
	if f != nil && unavailable(resp.StatusCode) {
		c.note(target, f.Err)
	} else {
		c.note(target, nil)
	}
	return f, false
}

func (c *call) isDown(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[target]
}

func (c *call) note(target string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.answered = true
	} else if c.down[target] == nil {
		c.down[target] = err
	}
}

// outage is the error of every URL that was asked being down.
func (c *call) outage() error {
	if c.answered {
		return nil
	}
	return errors.Join(slices.Collect(maps.Values(c.down))...)
}

// unavailable tells of an answer whether it speaks of the receiver as a whole.
func unavailable(code int) bool {
	switch code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (p *Publisher) request(ctx context.Context, e entry) (*http.Request, error) {
	m := e.Payload.message
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Payload.url, bytes.NewReader(m.Body))
	if err != nil {
		return nil, fmt.Errorf("webhook: %w: %w", outbox.ErrInvalidMessage, unquoted(err, e.Payload.url))
	}
	for name, value := range m.Attributes {
		if !token(name) || reserved[http.CanonicalHeaderKey(name)] {
			return nil, fmt.Errorf("%w: attribute %q can't be a header field of the request", outbox.ErrInvalidMessage, name)
		}
		req.Header.Set(name, percent(value))
	}
	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("Idempotency-Key", idempotencyKey(e.ID))
	if err := p.prepare(req); err != nil {
		return nil, fmt.Errorf("webhook: prepare the request to %s: %w", redacted(e.Payload.url), err)
	}
	return req, nil
}

// mostKey is the longest Idempotency-Key that receivers commonly take.
const mostKey = 255

// idempotencyKey is the message's ID, or a hash of it when it is too long for a key.
func idempotencyKey(id string) string {
	if key := percent(id); len(key) <= mostKey {
		return key
	}
	return digest.Short(id, digest.Most)
}

// reserved are header fields that an attribute may not set: those that shape the request itself, and those that this
// package sets.
var reserved = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true, "Expect": true, "Host": true,
	"Idempotency-Key": true, "Keep-Alive": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

func token(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}

// percent encodes a header field's value as CloudEvents' HTTP binding 1.0.2 does, section 3.1.3.2.
func percent(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		if c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

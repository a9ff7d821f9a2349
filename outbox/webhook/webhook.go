// Package webhook publishes outbox messages as HTTP requests: a POST per message, with the message's ID as
// Idempotency-Key (a hash of it, if it has more than 255 characters).
//
// By default the body is the message's own, with its content type, and its attributes, ID, topic and type are header
// fields (see [outbox.Plain]). Characters that a header field can't carry are percent-encoded, as CloudEvents' HTTP
// binding does it: space, double quote, percent sign, and everything outside printable ASCII.
//
// 2xx means sent. 408, 409 (the receiver is at work on an earlier copy), 425, 429 and 5xx mean later, and Retry-After is
// obeyed; that run waits and others go on. When the only receiver can't be reached, or says so itself (429, 502, 503,
// 504), that is an outage. Everything else is a refusal, a redirect included: a POST is not safely sent anywhere else.
//
// Messages of one topic and ordering key are sent one after the other, each when the one before was accepted.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Publisher posts messages. It may be used concurrently.
type Publisher struct {
	client      *http.Client
	routes      dispatch.Routes
	encode      outbox.Encoder
	prepare     func(*http.Request) error
	probe       string
	concurrency int
}

var _ outbox.Publisher = (*Publisher)(nil)

// Option configures a [Publisher].
type Option interface{ apply(*Publisher) }

type optionFunc func(*Publisher)

func (f optionFunc) apply(p *Publisher) { f(p) }

// WithURL sends messages of a topic to this URL.
func WithURL(topic, target string) Option {
	return optionFunc(func(p *Publisher) { p.routes.ByTopic[topic] = target })
}

// WithClient sets the HTTP client. The default one waits at most 15 s for an answer. Redirects are not followed, whatever
// the client says.
func WithClient(c *http.Client) Option { return optionFunc(func(p *Publisher) { p.client = c }) }

// WithRequest calls f with every request before it is sent, the check at start included: to sign it or to add an
// Authorization. f may read the body through GetBody. A message for which it fails is tried again later.
func WithRequest(f func(*http.Request) error) Option {
	return optionFunc(func(p *Publisher) { p.prepare = f })
}

// WithEncoder sets how messages travel. Default [outbox.Plain].
func WithEncoder(e outbox.Encoder) Option { return optionFunc(func(p *Publisher) { p.encode = e }) }

// WithProbe sets the method of the request by which New checks that a URL exists. Default HEAD. Some servers answer 404
// to every method but POST: OPTIONS may do there. An empty method leaves the check to the first message.
func WithProbe(method string) Option { return optionFunc(func(p *Publisher) { p.probe = method }) }

// WithConcurrency sets how many requests one call of Publish has under way at most. Default 8.
func WithConcurrency(n int) Option { return optionFunc(func(p *Publisher) { p.concurrency = n }) }

// New makes a publisher that posts every message to this URL, but for topics with a URL of their own ([WithURL]). The URL
// may be empty; messages of other topics are then refused. New asks every URL (see [WithProbe]) and fails if one can't be
// reached or answers that there is nothing there (404, 410).
func New(ctx context.Context, target string, opts ...Option) (*Publisher, error) {
	p := &Publisher{
		client: &http.Client{Timeout: 15 * time.Second}, encode: outbox.Plain, probe: http.MethodHead, concurrency: 8,
		prepare: func(*http.Request) error { return nil },
		routes:  dispatch.Routes{Default: target, ByTopic: map[string]string{}},
	}
	for _, o := range opts {
		if o != nil {
			o.apply(p)
		}
	}
	if p.client == nil || p.encode == nil || p.prepare == nil || p.concurrency < 1 {
		return nil, errors.New("webhook: the client, the encoder or the request function is nil, or the concurrency less than 1")
	}
	client := *p.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.client = &client
	urls, err := p.routes.Targets()
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	for _, u := range urls {
		if err := p.check(ctx, u); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Publisher) check(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("webhook: %q is not an absolute http or https URL", redacted(target))
	}
	if p.probe == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, p.probe, target, nil)
	if err == nil {
		err = p.prepare(req)
	}
	if err != nil {
		return fmt.Errorf("webhook: check %s: %w", redacted(target), err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("webhook: check: %w", unquoted(err, target))
	}
	discard(resp)
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		return fmt.Errorf("webhook: %s %s answers %s: nothing is there (or this method isn't known there: see WithProbe)", p.probe, redacted(target), resp.Status)
	}
	return nil
}

// redacted is the URL without what may be a secret in it: user, query and fragment.
func redacted(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// unquoted is the client's error without the URL that it quotes.
func unquoted(err error, target string) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return fmt.Errorf("%s: %w", redacted(target), err)
}

type request struct {
	url     string
	message outbox.Encoded
}

type entry = dispatch.Entry[request]

// Package eventbridgeoutbox publishes outbox messages to Amazon EventBridge event buses.
//
// The event's source is the one given, its detail-type the message's type or else its topic, its time when the message
// was recorded. The detail is by default the JSON object of [outbox.Envelope], whose member id is what consumers
// deduplicate by: EventBridge gives every copy an event ID of its own. A rule finds the content under detail.body.
//
// EventBridge keeps no order. Requests are filled up with what there is; within a call of Publish a message behind a
// failed one of its topic and ordering key is not sent in a later request.
package eventbridgeoutbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/awserr"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Client is what is needed of [*eventbridge.Client].
type Client interface {
	PutEvents(ctx context.Context, in *eventbridge.PutEventsInput, opts ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
	DescribeEventBus(ctx context.Context, in *eventbridge.DescribeEventBusInput, opts ...func(*eventbridge.Options)) (*eventbridge.DescribeEventBusOutput, error)
}

var (
	_ Client           = (*eventbridge.Client)(nil)
	_ outbox.Publisher = (*Publisher)(nil)
)

// Limits of PutEvents. Its entries together must stay under 1 MB (since January 2026; 256 KB before), which may mean a
// million bytes: requests stay under that, and only a single larger message is left to EventBridge's own judgement.
const (
	maxEntries    = 10
	requestBytes  = 1_000_000
	messageBytes  = 1 << 20
	maxDetailType = 128 // characters
	maxSource     = 256
	timeBytes     = 14 // what an entry's time counts, see "Calculating PutEvents event entry size"
)

// Publisher publishes to event buses. It may be used concurrently.
type Publisher struct {
	client Client
	source string
	routes dispatch.Routes
	encode outbox.Encoder
}

// Option configures a [Publisher].
type Option interface{ apply(*Publisher) }

type optionFunc func(*Publisher)

func (f optionFunc) apply(p *Publisher) { f(p) }

// WithBus sends messages of a topic to the bus with this name or ARN.
func WithBus(topic, bus string) Option {
	return optionFunc(func(p *Publisher) { p.routes.ByTopic[topic] = bus })
}

// WithEncoder sets how the detail is made, which must be a JSON object without anything beside it. Default
// [outbox.Envelope].
func WithEncoder(e outbox.Encoder) Option { return optionFunc(func(p *Publisher) { p.encode = e }) }

// New makes a publisher that sends every message to the bus with this name or ARN ("default" is the account's own), but
// for topics with a bus of their own ([WithBus]). The bus may be empty; messages of other topics are then refused. source
// names the application in every event, such as "com.example.shop". New asks EventBridge for every bus, and fails if one
// doesn't exist. The permissions that it takes are events:DescribeEventBus and events:PutEvents.
func New(ctx context.Context, client Client, bus, source string, opts ...Option) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("eventbridgeoutbox: the client is nil")
	}
	if source == "" || utf8.RuneCountInString(source) > maxSource || strings.HasPrefix(source, "aws.") {
		return nil, fmt.Errorf("eventbridgeoutbox: the source %q must have 1 to %d characters and not start with the prefix aws", source, maxSource)
	}
	p := &Publisher{
		client: client, source: source, encode: outbox.Envelope,
		routes: dispatch.Routes{Default: bus, ByTopic: map[string]string{}},
	}
	for _, o := range opts {
		if o != nil {
			o.apply(p)
		}
	}
	if p.encode == nil {
		return nil, errors.New("eventbridgeoutbox: the encoder is nil")
	}
	buses, err := p.routes.Targets()
	if err != nil {
		return nil, fmt.Errorf("eventbridgeoutbox: %w", err)
	}
	for _, bus := range buses {
		if _, err := client.DescribeEventBus(ctx, &eventbridge.DescribeEventBusInput{Name: aws.String(bus)}); err != nil {
			return nil, fmt.Errorf("eventbridgeoutbox: bus %s: it must exist, and events:DescribeEventBus be allowed: %w", bus, err)
		}
	}
	return p, nil
}

type entry = dispatch.Entry[types.PutEventsRequestEntry]

// Publish sends the messages in batches of ten, those for different buses together. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	entries := make([]entry, len(msgs))
	for i, m := range msgs {
		entries[i] = p.entry(m)
	}
	return dispatch.Send(ctx, entries, dispatch.Limits{Entries: maxEntries, Bytes: requestBytes}, p.send)
}

func (p *Publisher) entry(m outbox.Message) entry {
	e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key}
	bus, err := p.routes.Target(m.Topic)
	if err != nil {
		e.Err = err
		return e
	}
	detail, err := p.detail(m)
	if err != nil {
		e.Err = err
		return e
	}
	kind := m.Type
	if kind == "" {
		kind = m.Topic
	}
	e.Size = len(p.source) + len(kind) + len(detail)
	e.Payload = types.PutEventsRequestEntry{
		EventBusName: aws.String(bus), Source: aws.String(p.source), DetailType: aws.String(kind), Detail: aws.String(string(detail)),
	}
	if !m.Time.IsZero() {
		e.Payload.Time = aws.Time(m.Time)
		e.Size += timeBytes
	}
	switch {
	case utf8.RuneCountInString(kind) > maxDetailType:
		e.Err = fmt.Errorf("%w: a type or topic of more than %d characters, EventBridge's limit for detail-type", outbox.ErrInvalidMessage, maxDetailType)
	case e.Size > messageBytes:
		e.Err = fmt.Errorf("%w: %d bytes as an event, EventBridge takes 1 MB", outbox.ErrInvalidMessage, e.Size)
	}
	return e
}

func (p *Publisher) detail(m outbox.Message) ([]byte, error) {
	encoded, err := p.encode(m)
	if err != nil {
		return nil, err
	}
	if len(encoded.Attributes) > 0 {
		return nil, fmt.Errorf("%w: the encoder puts attributes beside the body, which EventBridge has no place for; "+
			"outbox.Envelope and outbox.CloudEventsStructured put them inside", outbox.ErrInvalidMessage)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(encoded.Body, " \t\r\n"), []byte("{")) || !json.Valid(encoded.Body) {
		return nil, fmt.Errorf("%w: the detail of an event must be a JSON object", outbox.ErrInvalidMessage)
	}
	return encoded.Body, nil
}

func (p *Publisher) send(ctx context.Context, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
	in := &eventbridge.PutEventsInput{Entries: make([]types.PutEventsRequestEntry, len(batch))}
	for i, e := range batch {
		in.Entries[i] = e.Payload
	}
	out, err := p.client.PutEvents(ctx, in)
	if err != nil { // a target that takes nothing is one of several here: each entry is asked for
		return nil, &dispatch.Failure{Err: fmt.Errorf("eventbridgeoutbox: put events: %w", err), Refused: awserr.Refused(err)}
	}
	failures := make([]*dispatch.Failure, len(batch))
	for i := range batch { // EventBridge answers in the order of the request
		switch {
		case i >= len(out.Entries):
			failures[i] = &dispatch.Failure{Err: errors.New("eventbridgeoutbox: EventBridge gave no answer for the event")}
		case out.Entries[i].ErrorCode != nil:
			code := aws.ToString(out.Entries[i].ErrorCode)
			failures[i] = &dispatch.Failure{
				Err:     fmt.Errorf("eventbridgeoutbox: bus %s: %s: %s", aws.ToString(batch[i].Payload.EventBusName), code, aws.ToString(out.Entries[i].ErrorMessage)),
				Refused: awserr.RefusedEntry(code, true),
			}
		}
	}
	return failures, nil
}

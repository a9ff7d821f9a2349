// Package sqsoutbox publishes outbox messages to Amazon SQS, to standard and FIFO queues.
//
// By default a message travels as its body, with message attributes for its own attributes, its ID and what else
// [outbox.Plain] adds, and content-type. A body that is not text by SQS's rule travels as base64, with the attribute
// body-encoding=base64. SQS takes at most ten attributes, and none without a value: those are left out.
//
// To a FIFO queue a message goes with its ordering key as MessageGroupId (a hash of it when SQS would not take the key)
// and a hash of its ID as MessageDeduplicationId, so that a copy that is sent again within five minutes is delivered
// once. Two messages of a group never travel in one request: SQS answers per message, and the second could be accepted
// where the first was not. A standard queue keeps no order; requests to it are filled up with what there is.
package sqsoutbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/attrs"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/awserr"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Client is what is needed of [*sqs.Client].
type Client interface {
	SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
	GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, opts ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
}

var (
	_ Client           = (*sqs.Client)(nil)
	_ outbox.Publisher = (*Publisher)(nil)
)

// Limits of SQS, see "Amazon SQS message quotas" and the reference of SendMessageBatch (1 MiB since August 2025).
const (
	maxEntries    = 10
	maxBytes      = 1 << 20 // of a message, and of a request
	maxAttributes = 10
)

// Publisher publishes to SQS queues. It may be used concurrently.
type Publisher struct {
	client Client
	routes dispatch.Routes
	encode outbox.Encoder
	limit  map[string]int // per queue URL, of a message in bytes
}

// Option configures a [Publisher].
type Option interface{ apply(*Publisher) }

type optionFunc func(*Publisher)

func (f optionFunc) apply(p *Publisher) { f(p) }

// WithQueue sends messages of a topic to the queue with this URL.
func WithQueue(topic, url string) Option {
	return optionFunc(func(p *Publisher) { p.routes.ByTopic[topic] = url })
}

// WithEncoder sets how messages travel. Default [outbox.Plain].
func WithEncoder(e outbox.Encoder) Option { return optionFunc(func(p *Publisher) { p.encode = e }) }

// New makes a publisher that sends every message to the queue with this URL, but for topics with a queue of their own
// ([WithQueue]). The URL may be empty; messages of other topics are then refused. New asks SQS for every queue, and fails
// if one doesn't exist. The permissions that it takes are sqs:GetQueueAttributes and sqs:SendMessage.
func New(ctx context.Context, client Client, queueURL string, opts ...Option) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("sqsoutbox: the client is nil")
	}
	p := &Publisher{
		client: client, encode: outbox.Plain, limit: map[string]int{},
		routes: dispatch.Routes{Default: queueURL, ByTopic: map[string]string{}},
	}
	for _, o := range opts {
		if o != nil {
			o.apply(p)
		}
	}
	if p.encode == nil {
		return nil, errors.New("sqsoutbox: the encoder is nil")
	}
	queues, err := p.routes.Targets()
	if err != nil {
		return nil, fmt.Errorf("sqsoutbox: %w", err)
	}
	for _, url := range queues {
		if err := p.check(ctx, url); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Publisher) check(ctx context.Context, url string) error {
	out, err := p.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameMaximumMessageSize},
	})
	if err != nil {
		return fmt.Errorf("sqsoutbox: queue %s: it must exist, and sqs:GetQueueAttributes be allowed: %w", url, err)
	}
	p.limit[url] = maxBytes
	if n, err := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameMaximumMessageSize)]); err == nil && n > 0 {
		p.limit[url] = min(n, maxBytes)
	}
	return nil
}

type entry = dispatch.Entry[types.SendMessageBatchRequestEntry]

// Publish sends the messages in batches of ten. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	byQueue := map[string][]entry{}
	var queues []string
	for _, m := range msgs {
		url, err := p.routes.Target(m.Topic)
		if byQueue[url] == nil {
			queues = append(queues, url)
		}
		e := entry{ID: m.ID, Err: err}
		if err == nil {
			e = p.entry(m, url)
		} else {
			e.Lane = m.Topic + "\x00" + m.Key
		}
		byQueue[url] = append(byQueue[url], e)
	}
	return dispatch.ByTarget(byQueue, queues, func(url string, entries []entry) ([]outbox.Result, error) {
		limits := dispatch.Limits{Entries: maxEntries, Bytes: maxBytes, OnePerLane: fifo(url)}
		return dispatch.Send(ctx, entries, limits, func(ctx context.Context, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
			return p.send(ctx, url, batch)
		})
	})
}

// fifo tells the kind of a queue: the name of a FIFO queue, and of no other, ends in ".fifo".
func fifo(url string) bool { return strings.HasSuffix(url, ".fifo") }

func (p *Publisher) entry(m outbox.Message, url string) entry {
	e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key}
	if fifo(url) {
		group := attrs.Group(m.Key)
		e.Lane = group
		e.Payload.MessageGroupId = aws.String(group)
		e.Payload.MessageDeduplicationId = aws.String(attrs.Deduplication(m.ID))
	}
	encoded, err := p.encode(m)
	if err != nil {
		e.Err = err
		return e
	}
	text, err := attrs.Make(encoded)
	switch {
	case err != nil:
		e.Err = err
	case len(text.Attributes) > maxAttributes:
		e.Err = fmt.Errorf("%w: %d attributes, SQS takes %d", outbox.ErrInvalidMessage, len(text.Attributes), maxAttributes)
	case text.Size > p.limit[url]:
		e.Err = fmt.Errorf("%w: %d bytes with its attributes, the queue takes %d", outbox.ErrInvalidMessage, text.Size, p.limit[url])
	}
	e.Size = text.Size
	e.Payload.MessageBody = aws.String(text.Body)
	e.Payload.MessageAttributes = make(map[string]types.MessageAttributeValue, len(text.Attributes))
	for _, a := range text.Attributes {
		e.Payload.MessageAttributes[a.Name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(a.Value)}
	}
	return e
}

func (p *Publisher) send(ctx context.Context, url string, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
	in := &sqs.SendMessageBatchInput{QueueUrl: aws.String(url), Entries: make([]types.SendMessageBatchRequestEntry, len(batch))}
	for i, e := range batch {
		in.Entries[i] = e.Payload
		in.Entries[i].Id = aws.String(dispatch.Name(i))
	}
	out, err := p.client.SendMessageBatch(ctx, in)
	if err != nil {
		return nil, &dispatch.Failure{Err: fmt.Errorf("sqsoutbox: send to %s: %w", url, err), Refused: awserr.Refused(err), Target: awserr.Target(err)}
	}
	answers := dispatch.NewAnswers(len(batch), errors.New("sqsoutbox: SQS gave no answer for the message"))
	for _, ok := range out.Successful {
		answers.Set(aws.ToString(ok.Id), nil)
	}
	for _, bad := range out.Failed {
		code := aws.ToString(bad.Code)
		answers.Set(aws.ToString(bad.Id), &dispatch.Failure{
			Err:     fmt.Errorf("sqsoutbox: %s: %s: %s", url, code, aws.ToString(bad.Message)),
			Refused: awserr.RefusedEntry(code, bad.SenderFault),
		})
	}
	return answers, nil
}

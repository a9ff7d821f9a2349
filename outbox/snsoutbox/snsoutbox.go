// Package snsoutbox publishes outbox messages to Amazon SNS, to standard and FIFO topics.
//
// By default a message travels as its body, with message attributes for its own attributes, its ID and what else
// [outbox.Plain] adds, and content-type. A body that is not text by the rule of SQS travels as base64, with the attribute
// body-encoding=base64. Attributes without a value are left out. A subscription with raw message delivery to SQS takes at
// most ten attributes.
//
// To a FIFO topic a message goes with its ordering key as MessageGroupId (a hash of it when SNS would not take the key)
// and a hash of its ID as MessageDeduplicationId, so that a copy that is sent again within five minutes is delivered
// once. Two messages of a group never travel in one request: SNS answers per message, and the second could be accepted
// where the first was not. A standard topic keeps no order; requests to it are filled up with what there is.
package snsoutbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/attrs"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/awserr"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Client is what is needed of [*sns.Client].
type Client interface {
	PublishBatch(ctx context.Context, in *sns.PublishBatchInput, opts ...func(*sns.Options)) (*sns.PublishBatchOutput, error)
	GetTopicAttributes(ctx context.Context, in *sns.GetTopicAttributesInput, opts ...func(*sns.Options)) (*sns.GetTopicAttributesOutput, error)
}

var (
	_ Client           = (*sns.Client)(nil)
	_ outbox.Publisher = (*Publisher)(nil)
)

// Limits of SNS, see the references of PublishBatch and SetTopicAttributes: a message, and a request, may have 256 KiB,
// or what the topic's MaximumMessageSize says, up to 1 MiB.
const (
	maxEntries   = 10
	defaultBytes = 256 << 10
	mostBytes    = 1 << 20
)

// Publisher publishes to SNS topics. It may be used concurrently.
type Publisher struct {
	client Client
	routes dispatch.Routes
	encode outbox.Encoder
	limit  map[string]int // per topic ARN, of a message and of a request in bytes
}

// Option configures a [Publisher].
type Option interface{ apply(*Publisher) }

type optionFunc func(*Publisher)

func (f optionFunc) apply(p *Publisher) { f(p) }

// WithTopic sends messages of a topic of the outbox to the SNS topic with this ARN.
func WithTopic(topic, arn string) Option {
	return optionFunc(func(p *Publisher) { p.routes.ByTopic[topic] = arn })
}

// WithEncoder sets how messages travel. Default [outbox.Plain].
func WithEncoder(e outbox.Encoder) Option { return optionFunc(func(p *Publisher) { p.encode = e }) }

// New makes a publisher that sends every message to the SNS topic with this ARN, but for topics with one of their own
// ([WithTopic]). The ARN may be empty; messages of other topics are then refused. New asks SNS for every topic, and fails
// if one doesn't exist. The permissions that it takes are sns:GetTopicAttributes and sns:Publish.
func New(ctx context.Context, client Client, topicARN string, opts ...Option) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("snsoutbox: the client is nil")
	}
	p := &Publisher{
		client: client, encode: outbox.Plain, limit: map[string]int{},
		routes: dispatch.Routes{Default: topicARN, ByTopic: map[string]string{}},
	}
	for _, o := range opts {
		if o != nil {
			o.apply(p)
		}
	}
	if p.encode == nil {
		return nil, errors.New("snsoutbox: the encoder is nil")
	}
	topics, err := p.routes.Targets()
	if err != nil {
		return nil, fmt.Errorf("snsoutbox: %w", err)
	}
	for _, arn := range topics {
		if err := p.check(ctx, arn); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Publisher) check(ctx context.Context, arn string) error {
	out, err := p.client.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: aws.String(arn)})
	if err != nil {
		return fmt.Errorf("snsoutbox: topic %s: it must exist, and sns:GetTopicAttributes be allowed: %w", arn, err)
	}
	p.limit[arn] = defaultBytes
	if n, err := strconv.Atoi(out.Attributes["MaximumMessageSize"]); err == nil && n > 0 {
		p.limit[arn] = min(n, mostBytes)
	}
	return nil
}

type entry = dispatch.Entry[types.PublishBatchRequestEntry]

// Publish sends the messages in batches of ten. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	byTopic := map[string][]entry{}
	var topics []string
	for _, m := range msgs {
		arn, err := p.routes.Target(m.Topic)
		if byTopic[arn] == nil {
			topics = append(topics, arn)
		}
		e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key, Err: err}
		if err == nil {
			e = p.entry(m, arn)
		}
		byTopic[arn] = append(byTopic[arn], e)
	}
	return dispatch.ByTarget(byTopic, topics, func(arn string, entries []entry) ([]outbox.Result, error) {
		limits := dispatch.Limits{Entries: maxEntries, Bytes: max(p.limit[arn], defaultBytes), OnePerLane: fifo(arn)}
		return dispatch.Send(ctx, entries, limits, func(ctx context.Context, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
			return p.send(ctx, arn, batch)
		})
	})
}

// fifo tells the kind of a topic: the name of a FIFO topic, and of no other, ends in ".fifo".
func fifo(arn string) bool { return strings.HasSuffix(arn, ".fifo") }

func (p *Publisher) entry(m outbox.Message, arn string) entry {
	e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key}
	if fifo(arn) {
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
	case text.Size > p.limit[arn]:
		e.Err = fmt.Errorf("%w: %d bytes with its attributes, the topic takes %d", outbox.ErrInvalidMessage, text.Size, p.limit[arn])
	}
	e.Size = text.Size
	e.Payload.Message = aws.String(text.Body)
	e.Payload.MessageAttributes = make(map[string]types.MessageAttributeValue, len(text.Attributes))
	for _, a := range text.Attributes {
		e.Payload.MessageAttributes[a.Name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(a.Value)}
	}
	return e
}

func (p *Publisher) send(ctx context.Context, arn string, batch []entry) ([]*dispatch.Failure, *dispatch.Failure) {
	in := &sns.PublishBatchInput{TopicArn: aws.String(arn), PublishBatchRequestEntries: make([]types.PublishBatchRequestEntry, len(batch))}
	for i, e := range batch {
		in.PublishBatchRequestEntries[i] = e.Payload
		in.PublishBatchRequestEntries[i].Id = aws.String(dispatch.Name(i))
	}
	out, err := p.client.PublishBatch(ctx, in)
	if err != nil {
		return nil, &dispatch.Failure{
			Err:     fmt.Errorf("snsoutbox: publish to %s: %w", arn, err),
			Refused: awserr.Refused(err), Target: awserr.Target(err),
		}
	}
	answers := dispatch.NewAnswers(len(batch), errors.New("snsoutbox: SNS gave no answer for the message"))
	for _, ok := range out.Successful {
		answers.Set(aws.ToString(ok.Id), nil)
	}
	for _, bad := range out.Failed {
		code := aws.ToString(bad.Code)
		answers.Set(aws.ToString(bad.Id), &dispatch.Failure{
			Err:     fmt.Errorf("snsoutbox: %s: %s: %s", arn, code, aws.ToString(bad.Message)),
			Refused: awserr.RefusedEntry(code, bad.SenderFault),
		})
	}
	return answers, nil
}

// Package lambdaoutbox publishes outbox messages by invoking AWS Lambda functions asynchronously.
//
// The function gets by default the JSON object of [outbox.Envelope], whose member id is what it deduplicates by. Lambda
// puts the event into a queue of its own and answers before the function runs; what becomes of it then is the business of
// the function's retry settings and dead-letter queue. An asynchronous invocation has no order: messages of one topic and
// ordering key are handed to Lambda one after the other, but may run in any.
//
// With [WithDurableExecutions] every message names its durable execution after its ID, so that a copy that is sent again
// starts nothing new.
package lambdaoutbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/awserr"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// Client is what is needed of [*lambda.Client].
type Client interface {
	Invoke(ctx context.Context, in *lambda.InvokeInput, opts ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

var (
	_ Client           = (*lambda.Client)(nil)
	_ outbox.Publisher = (*Publisher)(nil)
)

// maxBytes is the most that an asynchronous invocation takes: 1 MB since October 2025.
const maxBytes = 1 << 20

// Publisher invokes Lambda functions. It may be used concurrently.
type Publisher struct {
	client      Client
	routes      dispatch.Routes
	encode      outbox.Encoder
	durable     bool
	concurrency int
}

// Option configures a [Publisher].
type Option interface{ apply(*Publisher) }

type optionFunc func(*Publisher)

func (f optionFunc) apply(p *Publisher) { f(p) }

// WithFunction hands messages of a topic to this function: a name, a partial or a full ARN, with a version or an alias if
// need be.
func WithFunction(topic, function string) Option {
	return optionFunc(func(p *Publisher) { p.routes.ByTopic[topic] = function })
}

// WithEncoder sets how the event is made, which must be JSON without anything beside it. Default [outbox.Envelope].
func WithEncoder(e outbox.Encoder) Option { return optionFunc(func(p *Publisher) { p.encode = e }) }

// WithDurableExecutions names the durable execution that a message starts: 52 characters of a to z and 2 to 7, a hash of
// its ID. Every function must be a durable one, and be named with a version or an alias. A message whose name is taken
// counts as sent: it has started its execution before.
func WithDurableExecutions() Option { return optionFunc(func(p *Publisher) { p.durable = true }) }

// WithConcurrency sets how many invocations one call of Publish has under way at most. Default 8.
func WithConcurrency(n int) Option { return optionFunc(func(p *Publisher) { p.concurrency = n }) }

// New makes a publisher that hands every message to this function, but for topics with one of their own
// ([WithFunction]). The function may be empty; messages of other topics are then refused. New asks Lambda for a dry run
// of every function, which starts nothing, and fails if one doesn't exist or may not be invoked. The permission that it
// takes is lambda:InvokeFunction.
func New(ctx context.Context, client Client, function string, opts ...Option) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("lambdaoutbox: the client is nil")
	}
	p := &Publisher{
		client: client, encode: outbox.Envelope, concurrency: 8,
		routes: dispatch.Routes{Default: function, ByTopic: map[string]string{}},
	}
	for _, o := range opts {
		if o != nil {
			o.apply(p)
		}
	}
	if p.encode == nil || p.concurrency < 1 {
		return nil, errors.New("lambdaoutbox: the encoder is nil, or the concurrency less than 1")
	}
	functions, err := p.routes.Targets()
	if err != nil {
		return nil, fmt.Errorf("lambdaoutbox: %w", err)
	}
	for _, f := range functions {
		in := &lambda.InvokeInput{FunctionName: aws.String(f), InvocationType: types.InvocationTypeDryRun}
		if _, err := client.Invoke(ctx, in); err != nil {
			return nil, fmt.Errorf("lambdaoutbox: function %s: it must exist, and lambda:InvokeFunction be allowed: %w", f, err)
		}
	}
	return p, nil
}

type entry = dispatch.Entry[*lambda.InvokeInput]

// Publish invokes a function per message, several at a time, those of one topic and ordering key one after the other.
// See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	entries := make([]entry, len(msgs))
	for i, m := range msgs {
		entries[i] = p.entry(m)
	}
	return dispatch.Each(ctx, entries, p.concurrency, p.invoke)
}

func (p *Publisher) entry(m outbox.Message) entry {
	e := entry{ID: m.ID, Lane: m.Topic + "\x00" + m.Key}
	function, err := p.routes.Target(m.Topic)
	if err != nil {
		e.Err = err
		return e
	}
	encoded, err := p.encode(m)
	switch {
	case err != nil:
		e.Err = err
	case len(encoded.Attributes) > 0:
		e.Err = fmt.Errorf("%w: the encoder puts attributes beside the body, which an asynchronous invocation has no place for; "+
			"outbox.Envelope and outbox.CloudEventsStructured put them inside", outbox.ErrInvalidMessage)
	case !json.Valid(encoded.Body):
		e.Err = fmt.Errorf("%w: the event of a Lambda function must be JSON", outbox.ErrInvalidMessage)
	case len(encoded.Body) > maxBytes:
		e.Err = fmt.Errorf("%w: %d bytes as an event, an asynchronous invocation takes 1 MB", outbox.ErrInvalidMessage, len(encoded.Body))
	}
	e.Payload = &lambda.InvokeInput{FunctionName: aws.String(function), InvocationType: types.InvocationTypeEvent, Payload: encoded.Body}
	if p.durable {
		e.Payload.DurableExecutionName = aws.String(digest.Short(m.ID, digest.Most))
	}
	return e
}

func (p *Publisher) invoke(ctx context.Context, e entry) (f *dispatch.Failure, whole bool) {
	_, err := p.client.Invoke(ctx, e.Payload)
	var started *types.DurableExecutionAlreadyStartedException
	if err == nil || errors.As(err, &started) {
		return nil, false
	}
	refused := awserr.Refused(err)
	return &dispatch.Failure{Err: fmt.Errorf("lambdaoutbox: invoke %s: %w", aws.ToString(e.Payload.FunctionName), err), Refused: refused}, !refused
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// awsConfig takes the region and the credentials from where every AWS program takes them.
func awsConfig(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err == nil && cfg.Region == "" {
		err = errors.New("no AWS region: set AWS_REGION, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile" +
			" (a server for tests takes any, such as us-east-1, test and test)")
	}
	return cfg, err
}

// openTable opens the store on DynamoDB. The table is made when it is not there.
func (o options) openTable(ctx context.Context) (state.Store, error) {
	cfg, err := awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := dynamodb.NewFromConfig(cfg, func(d *dynamodb.Options) {
		if o.endpoint != "" {
			d.BaseEndpoint = aws.String(o.endpoint)
		}
	})
	if err := dynamostore.CreateTable(ctx, client, o.table); err != nil {
		return nil, err
	}
	return dynamostore.New(client, o.table)
}

// openSQS is the way to a queue, which must exist.
func openSQS(ctx context.Context, queueURL string) (outbox.Publisher, error) {
	at, err := url.Parse(queueURL)
	if err != nil || at.Host == "" {
		return nil, fmt.Errorf("--sqs %s: not the URL of a queue", queueURL)
	}
	cfg, err := awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := sqs.NewFromConfig(cfg, func(s *sqs.Options) {
		if s.BaseEndpoint == nil { // a queue is asked for where its URL says it is, so that servers for tests are found too
			s.BaseEndpoint = aws.String(at.Scheme + "://" + at.Host)
		}
	})
	return sqsoutbox.New(ctx, client, queueURL)
}

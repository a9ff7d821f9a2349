package dynamostore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Client is what a store needs of DynamoDB. *dynamodb.Client is one, and so is a wrapper around it, such as [Meter]. Its
// methods must be safe for concurrent use.
type Client interface {
	PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

var (
	_ Client      = (*dynamodb.Client)(nil)
	_ state.Store = (*Store)(nil)
)

// Store keeps records in a table. Its methods may be called concurrently, and by many processes on one table. Use [New].
//
// Errors that are not among those that [state.Store] names say what to do where that is known (a table that is missing,
// credentials that are refused, throttling, a wrong clock) and wrap the SDK's. They leave open whether a write was made.
type Store struct {
	config
	client Client
	table  string
	memo   memo
	sweep  sweep
}

// New makes a store on a table that [CreateTable], or a template in docs/infra, has made. It sends nothing; [Store.Check]
// tells whether the table is as it should be.
func New(client Client, table string, opts ...Option) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: New: the client is nil")
	}
	if table == "" {
		return nil, errors.New("dynamostore: New: the table has no name")
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return &Store{config: c, client: client, table: table}, nil
}

// Capabilities: everything survives the process, ended runs can't be listed, and a payload may have about 398 KiB. The
// header, with the payloads up to 256 bytes, may have 400 KiB; the number of larger payloads is not limited.
func (s *Store) Capabilities() state.Capabilities {
	return state.Capabilities{MaxValue: maxValue, Durable: true}
}

func (s *Store) unsupported(what, key string) error {
	return fmt.Errorf("dynamostore: table %s: %s%s: %w", s.table, what, key, state.ErrUnsupported)
}

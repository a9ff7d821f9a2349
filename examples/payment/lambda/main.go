package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/provider"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/shop"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

func main() {
	// What is made here is used by every invocation of this environment, and ends with it.
	handler, _, err := newHandler(context.Background(), os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
	lambda.Start(handler)
}

// newHandler makes what lambda.Start takes. closeAll is for tests.
func newHandler(ctx context.Context, env func(string) string) (handler any, closeAll func() error, err error) {
	var closers []func() error
	closeAll = func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	log, err := zap.NewProduction()
	if err != nil {
		return nil, closeAll, err
	}
	store, err := openStore(ctx, env, &closers)
	if err != nil {
		return nil, closeAll, err
	}
	services, err := openServices(ctx, env, &closers)
	if err != nil {
		return nil, closeAll, err
	}
	relay, err := outbox.NewRelay(store, logged(log), outbox.WithLogger(log))
	if err != nil {
		return nil, closeAll, err
	}
	orders, err := saga.New(checkout.New(services), store, saga.WithLogger(log), saga.WithErrors(checkout.Errors()),
		saga.WithRelay(relay), saga.WithInterceptor(crashAfter(env("PAYMENT_CRASH_AFTER"))))
	if err != nil {
		return nil, closeAll, err
	}
	if env("PAYMENT_SWEEP") != "" {
		return sagalambda.Scheduled(relay, []saga.Recoverable{orders}, sagalambda.WithLogger(log)), closeAll, nil
	}
	key, err := sagalambda.KeyAt("order_no")
	if err != nil {
		return nil, closeAll, err
	}
	return sagalambda.SQS(orders, sagalambda.Body[checkout.Order](key), sagalambda.WithLogger(log)), closeAll, nil
}

func openStore(ctx context.Context, env func(string) string, closers *[]func() error) (state.Store, error) {
	if table := env("PAYMENT_TABLE"); table != "" {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		return dynamostore.New(dynamodb.NewFromConfig(cfg), table)
	}
	db := env("PAYMENT_DB")
	if db == "" {
		return nil, errors.New("set PAYMENT_DB to a file or PAYMENT_TABLE to a DynamoDB table")
	}
	store, err := sqlite.Open(ctx, db)
	if err != nil {
		return nil, err
	}
	*closers = append(*closers, store.Close)
	return store, nil
}

// openServices are the shop's services, whose books are files, so that they can be looked at afterwards.
func openServices(ctx context.Context, env func(string) string, closers *[]func() error) (checkout.Services, error) {
	books := func(service string) *ledger.File {
		base := env("PAYMENT_DB")
		if base == "" {
			base = os.TempDir() + "/payment" // all that a function may write to
		}
		return ledger.Open(base + "." + service + ".jsonl")
	}
	url := env("PAYMENT_PROVIDER")
	if url == "" {
		at, stop, err := provider.Serve(ctx, provider.New(books("provider"), provider.Mood{}))
		if err != nil {
			return checkout.Services{}, err
		}
		url = at
		*closers = append(*closers, stop)
	}
	cards := checkout.NewHTTPCards(url)
	*closers = append(*closers, func() error { cards.Close(); return nil })
	return checkout.Services{Stock: shop.NewStock(books("stock")), Cards: cards, Points: shop.NewPoints(books("points"))}, nil
}

// logged stands for a broker; see the packages below outbox for real ones.
func logged(log *zap.Logger) outbox.Publisher {
	return outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		results := make([]outbox.Result, len(msgs))
		for i, m := range msgs {
			log.Info("message_sent", zap.String("topic", m.Topic), zap.String("id", m.ID))
			results[i] = outbox.Result{ID: m.ID}
		}
		return results, nil
	})
}

// crashAfter ends the process when the first attempt at the step has run, before that is recorded.
func crashAfter(step string) saga.Interceptor {
	return func(ctx context.Context, call saga.Call, next func(context.Context) error) error {
		err := next(ctx)
		if err == nil && call.Phase == "do" && call.Step == step && call.Attempt == 1 {
			fmt.Fprintln(os.Stderr, step, "has run, and the process dies before that is recorded")
			os.Exit(1)
		}
		return err
	}
}

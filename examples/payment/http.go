package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
)

// serve makes orders over HTTP until ctx ends:
//
//	POST /orders        an order, with an Idempotency-Key
//	GET  /orders/{key}  where it stands
//
//	curl -i http://localhost:8080/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: order-001' \
//	  -d '{"order_no": "order-001", "sku": "tea-100", "quantity": 2, "amount": 1200}'
//	curl -i http://localhost:8080/orders/order-001
func (o options) serve(ctx context.Context, w *world) error {
	orders, err := o.orders(w)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.http)
	if err != nil {
		return err
	}
	sayf("http", "orders at http://%s/orders", strings.Replace(l.Addr().String(), "[::]", "localhost", 1))
	server := &http.Server{Handler: routes(orders), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	stopRelaying := w.relayBeside(ctx)
	defer stopRelaying()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*runTime)
	defer cancel()
	err = server.Shutdown(patience) // orders at hand get their answer
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// runTime is how long one request may be at work. What isn't done by then is interrupted, and the client sends it again.
const runTime = 15 * time.Second

func routes(orders *saga.Orchestrator[checkout.Order, checkout.Receipt]) http.Handler {
	declined := sagahttp.Failure{Status: http.StatusPaymentRequired, Title: "The card was declined"}
	opts := []sagahttp.Option{
		sagahttp.WithTimeout(runTime),
		sagahttp.WithFailure(checkout.CodeDeclined, declined),
		sagahttp.WithStatusLink(func(key saga.Key) string { return "/orders/" + url.PathEscape(key.ID) }),
		sagahttp.WithSteps(),
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", sagahttp.Handler(orders, newOrder, opts...))
	mux.Handle("GET /orders/{key}", sagahttp.StatusHandler(orders, func(r *http.Request) (saga.Key, error) {
		return runKey(r.PathValue("key")), nil
	}, opts...))
	return mux
}

// newOrder makes the run's key and input of a request. There is but one tenant here; a service takes it from the
// authentication. What is refused here leaves no trace.
func newOrder(r *http.Request) (saga.Key, checkout.Order, error) {
	id, err := sagahttp.IdempotencyKey(r)
	if err != nil {
		return saga.Key{}, checkout.Order{}, err
	}
	in, err := sagahttp.JSON[checkout.Order](r)
	if err == nil && (in.Amount <= 0 || in.Quantity <= 0) {
		err = &sagahttp.Refusal{Status: http.StatusUnprocessableEntity, Detail: "amount and quantity must be positive"}
	}
	return runKey(id), in, err
}

// Package sagahttp serves sagas over HTTP, so that a request with the same Idempotency-Key again does no harm and gets
// the same answer, and sends such requests.
//
//	checkout, err := saga.New(NewCheckout(stock, cards), store)
//	...
//	mux.Handle("POST /orders", sagahttp.Handler(checkout, sagahttp.Request[Order](tenantOf)))
//	mux.Handle("GET /orders/{key}", sagahttp.StatusHandler(checkout, keyOf))
//
// The answer is made of the run's record alone: the result's JSON with one status, or a problem document (RFC 9457) made
// of the failure's code. So any process gives the same answer to the same request, today or after a deployment, and no
// response is stored beside the record. docs/http.md lists every answer.
//
// # The key
//
// Whoever knows a key gets the run's answer. A key that a client has made up, by [IdempotencyKey], must therefore be
// joined to a tenant, or a user, that the server knows from the authentication, and never from what the client says.
//
// # The client's side
//
// [RetryTransport] makes the key, keeps it over its retries, and knows when to stop.
package sagahttp

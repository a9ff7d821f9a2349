package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

type Job struct {
	ID    string `json:"job_id"`
	Pages int    `json:"pages"`
}

// newPrint is an operation of one step, on a store that dies with the program.
func newPrint() *saga.Orchestrator[Job, string] {
	o, err := saga.New(saga.Once("print", func(_ context.Context, r *steps.Run[Job]) (string, error) {
		if r.Input.Pages == 0 {
			return "", steps.Permanent(errors.New("nothing to print"))
		}
		fmt.Println("printing", r.Input.ID)
		return "printed " + r.Input.ID, nil
	}), memory.New())
	if err != nil {
		fmt.Println(err)
	}
	return o
}

func ExampleSQS() {
	key, err := sagalambda.KeyAt("job_id")
	if err != nil {
		fmt.Println(err)
		return
	}
	handle := sagalambda.SQS(newPrint(), sagalambda.Body[Job](key)) // for lambda.Start
	resp, err := handle(context.Background(), events.SQSEvent{Records: []events.SQSMessage{
		{MessageId: "m1", Body: `{"job_id":"j-1","pages":3}`},
		{MessageId: "m2", Body: `{"job_id":"j-1","pages":3}`},
		{MessageId: "m3", Body: `{"pages":3}`},
	}})
	fmt.Println("to be delivered again:", resp.BatchItemFailures, err)
	// Output:
	// printing j-1
	// to be delivered again: [{m3}] <nil>
}

// A failure for good is acknowledged, and here its message goes to a queue where someone looks at it.
func ExampleWithFailed() {
	toTheDesk := func(_ context.Context, r sagalambda.Record) error {
		fmt.Println("to the desk:", r.ID, r.Key.ID)
		return nil // or an error, and the message is delivered again
	}
	key, err := sagalambda.KeyAt("job_id")
	if err != nil {
		fmt.Println(err)
		return
	}
	handle := sagalambda.SQS(newPrint(), sagalambda.Body[Job](key), sagalambda.WithFailed(toTheDesk))
	resp, err := handle(context.Background(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", Body: `{"job_id":"j-1"}`}}})
	fmt.Println("to be delivered again:", resp.BatchItemFailures, err)
	// Output:
	// to the desk: m1 j-1
	// to be delivered again: [] <nil>
}

func ExampleEvent() {
	key, err := sagalambda.KeyAt("detail.job_id", sagalambda.TenantAt("source"))
	if err != nil {
		fmt.Println(err)
		return
	}
	handle := sagalambda.Event(newPrint(), sagalambda.Detail[Job](key))
	event := events.EventBridgeEvent{Source: "shop", DetailType: "print", Detail: json.RawMessage(`{"job_id":"j-1","pages":3}`)}
	for range 2 {
		fmt.Println(handle(context.Background(), event))
	}
	// Output:
	// printing j-1
	// <nil>
	// <nil>
}

func ExampleInvoke() {
	handle := sagalambda.Invoke(newPrint(), func(j Job) (saga.Key, Job, error) { return saga.Key{ID: j.ID}, j, nil })
	for range 2 {
		fmt.Println(handle(context.Background(), Job{ID: "j-1", Pages: 3}))
	}
	// Output:
	// printing j-1
	// printed j-1 <nil>
	// printed j-1 <nil>
}

func ExampleAPIGateway() {
	tenantOf := func(r *http.Request) (string, error) {
		event, _ := sagalambda.EventFrom[events.APIGatewayV2HTTPRequest](r.Context())
		if a := event.RequestContext.Authorizer; a != nil && a.JWT != nil {
			return a.JWT.Claims["sub"], nil
		}
		return "", sagahttp.Status(http.StatusUnauthorized, errors.New("no claims"))
	}
	handle := sagalambda.APIGateway(sagahttp.Handler(sagalambda.Runner(newPrint()), sagahttp.Request[Job](tenantOf)))
	event := json.RawMessage(`{"version": "2.0", "rawPath": "/jobs", "headers": {"idempotency-key": "k-1"},
		"requestContext": {"http": {"method": "POST"}, "authorizer": {"jwt": {"claims": {"sub": "ann"}}}},
		"body": "{\"job_id\":\"j-1\",\"pages\":3}"}`)
	answer, err := handle(context.Background(), event)
	resp, _ := answer.(events.APIGatewayV2HTTPResponse)
	fmt.Println(resp.StatusCode, resp.Body, err)
	// Output:
	// printing j-1
	// 201 "printed j-1"
	//  <nil>
}

func ExampleKeyAt() {
	key, err := sagalambda.KeyAt("order.no", sagalambda.AndAt("line"), sagalambda.TenantAt("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	k, err := key.Key([]byte(`{"shop": "tenant-a", "order": {"no": "o-1"}, "line": 3}`))
	fmt.Println(k.Tenant, k.ID, err)
	_, err = key.Key([]byte(`{"shop": "tenant-a", "order": {"no": null}, "line": 3}`))
	fmt.Println(err)
	_, err = sagalambda.KeyAt("requestContext.requestId")
	fmt.Println(err)
	// Output:
	// tenant-a o-1/3 <nil>
	// the key's field order.no is missing or null
	// sagalambda: invalid key: requestContext.requestId names a request ID, which is another one in every delivery; take a business key
}

func ExampleScheduled() {
	tick := sagalambda.Scheduled(nil, []saga.Recoverable{newPrint()}) // with a relay, it sends what is due as well
	swept, err := tick(context.Background(), nil)
	fmt.Println(swept.Recovered.Completed, swept.Drained, err)
	// Output: 0 true <nil>
}

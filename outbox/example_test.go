package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// emitting is a saga whose only step emits a message.
func emitting(store state.Store, opts ...saga.Option) *saga.Orchestrator[string, string] {
	orders, err := saga.New(saga.Once("order", func(_ context.Context, r *steps.Run[string]) (string, error) {
		r.Emit(outbox.Message{Topic: "order-created", Key: r.Input, Type: "order.created", Body: map[string]string{"order": r.Input}})
		return "ok", nil
	}), store, opts...)
	if err != nil {
		panic(err)
	}
	return orders
}

// A relay sends what runs have emitted, here once, as a cron job does it.
func ExampleRelay_Drain() {
	ctx := context.Background()
	store := memory.New()
	orders := emitting(store)
	if _, err := orders.Run(ctx, saga.Key{ID: "1"}, "o-1"); err != nil {
		panic(err)
	}

	toStdout := outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		var results []outbox.Result
		for _, m := range msgs {
			fmt.Printf("%s %s: %s\n", m.Topic, m.ID, m.Bytes())
			results = append(results, outbox.Result{ID: m.ID})
		}
		return results, nil
	})
	relay, err := outbox.NewRelay(store, toStdout)
	if err != nil {
		panic(err)
	}
	fmt.Println(relay.Drain(ctx))
	fmt.Println(relay.Stats().Sent, "sent")
	// Output:
	// order-created #order#1/order/0: {"order":"o-1"}
	// <nil>
	// 1 sent
}

// A service runs the relay beside everything else, and gives it to its orchestrators as well, so that messages leave
// right after their run.
func ExampleRelay_Run() {
	store := memory.New()
	publisher := outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		results := make([]outbox.Result, len(msgs))
		for i, m := range msgs {
			fmt.Println(m.Type)
			results[i].ID = m.ID
		}
		return results, nil
	})
	relay, err := outbox.NewRelay(store, publisher)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()

	orders := emitting(store, saga.WithRelay(relay))
	if _, err := orders.Run(ctx, saga.Key{ID: "1"}, "o-1"); err != nil {
		panic(err)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// order.created
	// <nil>
}

// A message that the broker refuses is set aside, with what its run emitted after it, until a person decides.
func ExampleSource_unpark() {
	ctx := context.Background()
	store := memory.New()
	if _, err := emitting(store).Run(ctx, saga.Key{ID: "1"}, "o-1"); err != nil {
		panic(err)
	}
	allowed := false
	publisher := outbox.PublisherFunc(func(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		results := make([]outbox.Result, len(msgs))
		for i, m := range msgs {
			results[i].ID = m.ID
			if !allowed {
				results[i].Err, results[i].Refused = errors.New("access denied"), true
			}
		}
		return results, nil
	})
	relay, err := outbox.NewRelay(store, publisher, outbox.WithMaxRefusals(2), outbox.WithBackoff(time.Millisecond, time.Millisecond))
	if err != nil {
		panic(err)
	}
	fmt.Println(relay.Drain(ctx), relay.Stats().Parked, "parked")

	allowed = true // somebody has put it right
	for cursor := ""; ; {
		msgs, next, err := store.Parked(ctx, cursor)
		if err != nil {
			panic(err)
		}
		for _, m := range msgs {
			fmt.Println("send again:", m.ID)
			if err := store.Unpark(state.ActorContext(ctx, "ann"), m.ID, true, "the policy is fixed"); err != nil {
				panic(err)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	fmt.Println(relay.Drain(ctx), relay.Stats().Sent, "sent")
	// Output:
	// <nil> 1 parked
	// send again: #order#1/order/0
	// <nil> 1 sent
}

// A consumer keeps in mind what it has done, by the message's ID: the second copy does nothing.
func ExampleMessage_consumer() {
	ctx := context.Background()
	received := []outbox.Message{{ID: "#order#1/order/0", Body: []byte(`"o-1"`)}, {ID: "#order#1/order/0", Body: []byte(`"o-1"`)}}

	ship, err := saga.New(saga.Once("ship", func(_ context.Context, r *steps.Run[string]) (string, error) {
		fmt.Println("shipping", r.Input)
		return "parcel-7", nil
	}), memory.New())
	if err != nil {
		panic(err)
	}
	for _, m := range received {
		parcel, err := ship.Run(ctx, saga.Key{ID: m.ID}, string(m.Bytes()))
		fmt.Println(parcel, err)
	}
	// Output:
	// shipping "o-1"
	// parcel-7 <nil>
	// parcel-7 <nil>
}

// Messages can travel as CloudEvents; every publisher takes an encoder.
func ExampleCloudEventsStructured() {
	encode, err := outbox.CloudEventsStructured("https://example.com/shop")
	if err != nil {
		panic(err)
	}
	e, err := encode(outbox.Message{
		ID: "#order#1/order/0", Topic: "orders", Key: "o-1", Type: "com.example.order.created",
		Body: []byte(`{"total":12.50}`), ContentType: "application/json", Time: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(e.ContentType)
	fmt.Println(string(e.Body))
	// Output:
	// application/cloudevents+json; charset=UTF-8
	// {"data":{"total":12.50},"datacontenttype":"application/json","id":"#order#1/order/0","partitionkey":"o-1","source":"https://example.com/shop","specversion":"1.0","subject":"o-1","time":"2026-11-29T12:00:00Z","type":"com.example.order.created"}
}

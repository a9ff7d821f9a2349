package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/queue"
	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// openRelay makes the relay, which sends the messages that steps have left in the store: to SQS, or else to a file.
func (o options) openRelay(ctx context.Context, source outbox.Source) (_ *outbox.Relay, err error) {
	var to outbox.Publisher = o.queue()
	if o.sqs != "" {
		if to, err = openSQS(ctx, o.sqs); err != nil {
			return nil, err
		}
	}
	return outbox.NewRelay(source, aloud(to))
}

// aloud says what was sent.
func aloud(to outbox.Publisher) outbox.Publisher {
	return outbox.PublisherFunc(func(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		results, err := to.Publish(ctx, msgs)
		for _, r := range results {
			switch {
			case r.Err == nil:
				sayf("outbox", "%s: %s", good("sent"), r.ID)
			case r.Refused:
				sayf("outbox", "%s: %s", bad("refused"), r.ID)
			}
		}
		return results, err
	})
}

// sendTheRest sends what no run of this process sends: the messages of runs whose process died before it came to that. A
// broker that is out is no error of this program. The messages wait.
func (w *world) sendTheRest(ctx context.Context) error {
	err := w.relay.Drain(ctx)
	if errors.Is(err, outbox.ErrOutage) || errors.Is(err, outbox.ErrUnsent) {
		sayf("outbox", "%s: messages wait in the store for the next process", bad("not sent"))
		return nil
	}
	return err
}

// relayBeside runs the relay's loop until stop is called, which lets it finish what it has in hand.
func (w *world) relayBeside(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.relay.Run(ctx) // it returns nil
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (o options) queue() *queue.File { return queue.Open(o.db + ".queue.jsonl") }

// showQueue prints the messages in the queue, if that is a file.
func (o options) showQueue() error {
	if o.sqs != "" {
		return nil // its messages are for those who receive them
	}
	entries, err := o.queue().Entries()
	if err != nil {
		return err
	}
	switch len(entries) {
	case 0:
		fmt.Println("the queue: no message")
	case 1:
		fmt.Println("the queue: one message")
	default:
		fmt.Printf("the queue: %d messages\n", len(entries))
	}
	for _, e := range entries {
		sayf(e.Topic, "%s  %s", e.ID, e.Body)
	}
	return nil
}

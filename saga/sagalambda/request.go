package sagalambda

import (
	"encoding/json"
	"errors"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

var errNoKeyPath = errors.New("sagalambda: the KeyPath is nil; see KeyAt")

// Body is for [SQS]: key and input from the message's body, which is JSON. Members that In has no field for are passed
// over. When a topic or a bus fills the queue, the body is its envelope, and so must In be.
func Body[In any](key *KeyPath) func(events.SQSMessage) (saga.Key, In, error) {
	return func(m events.SQSMessage) (saga.Key, In, error) {
		return fromJSON[In](key, []byte(m.Body), []byte(m.Body))
	}
}

// Data is for [Kinesis]: key and input from the record's data, which is JSON.
func Data[In any](key *KeyPath) func(events.KinesisEventRecord) (saga.Key, In, error) {
	return func(r events.KinesisEventRecord) (saga.Key, In, error) {
		return fromJSON[In](key, r.Kinesis.Data, r.Kinesis.Data)
	}
}

// Message is for [SNS]: key and input from the notification's message, which is JSON.
func Message[In any](key *KeyPath) func(events.SNSEventRecord) (saga.Key, In, error) {
	return func(r events.SNSEventRecord) (saga.Key, In, error) {
		return fromJSON[In](key, []byte(r.SNS.Message), []byte(r.SNS.Message))
	}
}

// Detail is for [Event] with EventBridge: the key's paths start at the event ("detail.order_id"), and the input is its
// detail.
func Detail[In any](key *KeyPath) func(events.EventBridgeEvent) (saga.Key, In, error) {
	return func(e events.EventBridgeEvent) (k saga.Key, in In, err error) {
		whole, err := json.Marshal(e)
		if err != nil {
			return k, in, &Refusal{Reason: "its detail is no JSON", Err: err}
		}
		return fromJSON[In](key, whole, e.Detail)
	}
}

// Payload is for [Event] and [Invoke]: key and input from the whole event.
func Payload[In any](key *KeyPath) func(json.RawMessage) (saga.Key, In, error) {
	return func(raw json.RawMessage) (saga.Key, In, error) { return fromJSON[In](key, raw, raw) }
}

func fromJSON[In any](path *KeyPath, keyOf, inputOf []byte) (key saga.Key, in In, err error) {
	if path == nil {
		return key, in, &Refusal{Reason: errNoKeyPath.Error(), Err: errNoKeyPath}
	}
	if key, err = path.Key(keyOf); err != nil {
		return key, in, err
	}
	in, err = decode[In](inputOf)
	return key, in, err
}

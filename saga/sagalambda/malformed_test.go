package sagalambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

func TestAMalformedRecordIsReturnedAndLoggedWithoutItsContent(t *testing.T) {
	for name, tc := range map[string]struct{ body, reason string }{
		"no JSON":        {`s3cret`, "its JSON is refused"},
		"nothing":        {``, "its JSON is refused"},
		"two values":     {`{"no":"s3cret"}{"no":"s3cret"}`, "its JSON is refused"},
		"doubled member": {`{"no":"s3cret","no":"s3cret"}`, "its JSON is refused"},
		"wrong type":     {`{"no":"s3cret","amount":"s3cret"}`, `"amount\" can't take this JSON string`},
		"no whole":       {`{"no":"s3cret","amount":1.5}`, `"amount\" can't take this JSON number`},
		"no object":      {`["s3cret"]`, "the key's field no is missing or null"},
		"no key":         {`{"amount":1}`, "the key's field no is missing or null"},
		"null key":       {`{"no":null}`, "the key's field no is missing or null"},
		"blank key":      {`{"no":" "}`, "the key's field no is blank"},
		"an object":      {`{"no":{"s3cret":1}}`, "is neither a string nor a number"},
		"a list":         {`{"no":["s3cret"]}`, "is neither a string nor a number"},
		"a boolean":      {`{"no":false}`, "is a boolean"},
		"a trace ID":     {`{"no":"Root=1-67891233-abcdef012345678912345678"}`, "holds a trace ID"},
		"a traceparent":  {`{"no":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`, "holds a trace ID"},
	} {
		t.Run(name, func(t *testing.T) {
			log, ran := &logged{}, false
			m := message(t, "m1", "", "")
			m.Body = tc.body
			handle := sagalambda.SQS(fake(func(context.Context, saga.Key, order) (string, error) { ran = true; return "", nil }),
				sagalambda.Body[order](keyAt(t, "no")), sagalambda.WithLogger(log.logger()))
			resp, err := handle(t.Context(), queue(m))
			assert.Equal(t, []string{"m1"}, returned(t, resp, err))
			assert.False(t, ran)
			assert.Contains(t, log.text(), `"msg":"record_malformed","record":"m1"`)
			assert.Contains(t, log.text(), tc.reason)
			assert.NotContains(t, log.text(), "s3cret")
		})
	}
}

func TestTheErrorOfAUsersFunctionIsShownOnlyWhenItIsARefusal(t *testing.T) {
	log := &logged{}
	handle := func(err error) error {
		return sagalambda.Event(always(nil), func(order) (saga.Key, order, error) { return saga.Key{}, order{}, err }, sagalambda.WithLogger(log.logger()))(t.Context(), order{})
	}
	err := handle(errors.New("order s3cret has no lines"))
	require.ErrorContains(t, err, "an error of type *errors.errorString")
	assert.NotContains(t, err.Error(), "s3cret")
	cause := errors.New("s3cret")
	err = handle(&sagalambda.Refusal{Reason: "the order has no lines", Err: cause})
	require.ErrorContains(t, err, "no run can be made of the event: the order has no lines")
	require.ErrorIs(t, err, cause)
	assert.NotContains(t, err.Error(), "s3cret")
	assert.NotContains(t, log.text(), "s3cret")
	assert.Contains(t, log.text(), "the order has no lines")
}

func TestAPanicOfTheRequestFunctionIsMalformed(t *testing.T) {
	log := &logged{}
	handle := sagalambda.SQS(always(nil), func(m events.SQSMessage) (saga.Key, order, error) {
		if m.MessageId == "m1" {
			panic("s3cret")
		}
		return byNo(m)
	}, sagalambda.WithLogger(log.logger()))
	resp, err := handle(t.Context(), queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	assert.NotContains(t, log.text(), "s3cret")
	assert.Contains(t, log.text(), "record_panic")
}

func TestAMalformedRecordCanBeSentOn(t *testing.T) {
	var got sagalambda.Record
	m := message(t, "m1", "", "")
	m.Body = "{"
	resp, err := sagalambda.SQS(always(nil), byNo, sagalambda.WithMalformed(func(_ context.Context, r sagalambda.Record) error { got = r; return nil }))(t.Context(), queue(m))
	assert.Empty(t, returned(t, resp, err))
	assert.Equal(t, m, got.Event)
	var malformed *sagalambda.MalformedError
	require.ErrorAs(t, got.Err, &malformed)
	assert.Equal(t, "m1", malformed.ID)
	var syntax *json.SyntaxError
	assert.ErrorAs(t, got.Err, &syntax, "the cause is there for those who look")
}

func TestANilKeyPath(t *testing.T) {
	resp, err := sagalambda.SQS(always(nil), sagalambda.Body[order](nil))(t.Context(), queue(message(t, "m1", "", "o-1")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
}

package sagalambda_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

func TestKeysAreTakenFromFields(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		opts []sagalambda.KeyOption
		doc  string
		want saga.Key
	}{
		"a field":          {"job_id", nil, `{"job_id":"j-1","x":1}`, saga.Key{ID: "j-1"}},
		"a nested one":     {"detail.order_id", nil, `{"detail":{"order_id":"o-1"}}`, saga.Key{ID: "o-1"}},
		"a quoted name":    {`detail."order-id"`, nil, `{"detail":{"order-id":"o-1"}}`, saga.Key{ID: "o-1"}},
		"an element":       {"orders[0].id", nil, `{"orders":[{"id":"o-1"}]}`, saga.Key{ID: "o-1"}},
		"a choice":         {"order_id || job_id", nil, `{"job_id":"j-1"}`, saga.Key{ID: "j-1"}},
		"a function":       {"join('-', [a, b])", nil, `{"a":"x","b":"y"}`, saga.Key{ID: "x-y"}},
		"a count":          {"length(items)", nil, `{"items":[1,2]}`, saga.Key{ID: "2"}},
		"zero":             {"id", nil, `{"id":0}`, saga.Key{ID: "0"}},
		"1.0 is 1":         {"id", nil, `{"id":1.0}`, saga.Key{ID: "1"}},
		"a long number":    {"id", nil, `{"id":9007199254740993}`, saga.Key{ID: "9007199254740993"}},
		"false, as a text": {"id", nil, `{"id":"false"}`, saga.Key{ID: "false"}},
		"spaces are kept":  {"id", nil, `{"id":" x "}`, saga.Key{ID: " x "}},
		"all": {"id", []sagalambda.KeyOption{nil, sagalambda.TenantAt("shop"), sagalambda.OperationAt("op"), sagalambda.AndAt("line")},
			`{"id":"a/b","line":3,"shop":"s%/","op":"checkout"}`, saga.Key{Tenant: "s%/", Operation: "checkout", ID: "a%2Fb/3"}},
		"parts don't run into one another": {"id", []sagalambda.KeyOption{sagalambda.AndAt("line")}, `{"id":"a","line":"b/3"}`, saga.Key{ID: "a/b%2F3"}},
		"a message ID of an outbox":        {"message_id", nil, `{"message_id":"t#o#1/notify/0"}`, saga.Key{ID: "t#o#1/notify/0"}},
		"a literal is no name":             {"id || 'request_id'", nil, `{"id":"1"}`, saga.Key{ID: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := keyAt(t, tc.path, tc.opts...).Key([]byte(tc.doc))
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestWhatIsNoBusinessKeyIsRefused(t *testing.T) {
	for _, path := range []string{"requestId", "request_id", "aws_request_id", "requestContext.requestId", `headers."X-Amzn-Trace-Id"`,
		`"x-amzn-RequestId"`, "trace_id", "traceparent", "a || xray_trace_id", "receiptHandle", "join('/', [job_id, request_id])"} {
		_, err := sagalambda.KeyAt(path)
		require.ErrorIs(t, err, saga.ErrInvalidKey, path)
		require.ErrorContains(t, err, "take a business key", path)
		_, err = sagalambda.KeyAt("id", sagalambda.AndAt(path))
		require.ErrorIs(t, err, saga.ErrInvalidKey, path)
	}
	for _, path := range []string{"", "a.", "[", "a b"} {
		for name, opt := range map[string]sagalambda.KeyOption{"and": sagalambda.AndAt(path), "tenant": sagalambda.TenantAt(path), "operation": sagalambda.OperationAt(path)} {
			_, err := sagalambda.KeyAt("id", opt)
			require.ErrorContains(t, err, "no JMESPath", "%s %q", name, path)
		}
		_, err := sagalambda.KeyAt(path)
		require.ErrorContains(t, err, "no JMESPath", "%q", path)
	}
	for doc, want := range map[string]error{
		`{"id":"1"}`: saga.ErrInvalidKey, `{"id":"1","shop":null}`: saga.ErrInvalidKey, `{"id":"1","shop":"s"}`: saga.ErrInvalidKey,
		`{`: saga.ErrInvalidInput, `{"shop":"s","op":"o"}`: saga.ErrInvalidKey,
	} {
		key, err := keyAt(t, "id", sagalambda.TenantAt("shop"), sagalambda.OperationAt("op")).Key([]byte(doc))
		require.ErrorIs(t, err, want, doc)
		assert.Zero(t, key, doc)
	}
	_, err := keyAt(t, "abs(id)").Key([]byte(`{"id":"s3cret"}`))
	require.ErrorContains(t, err, "can't be looked up")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestTheInvocationsOwnRequestIDIsRefused(t *testing.T) {
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "o-1"})
	resp, err := sagalambda.SQS(always(nil), byNo)(ctx, queue(message(t, "m1", "", "o-1"), message(t, "m2", "", "o-2")))
	assert.Equal(t, []string{"m1"}, returned(t, resp, err))
	_, err = sagalambda.Invoke(always(nil), func(in order) (saga.Key, order, error) { return saga.Key{ID: in.No}, in, nil })(ctx, order{No: "o-1"})
	require.ErrorIs(t, err, saga.ErrInvalidKey)
	require.ErrorContains(t, err, "take a business key")
}

func TestAnEventOfAnotherOperationDoesNothing(t *testing.T) {
	shop := &shop{}
	key := keyAt(t, "no", sagalambda.OperationAt("op"))
	handle := sagalambda.Event(shop.on(t, newStore()), sagalambda.Payload[order](key))
	require.ErrorIs(t, handle(t.Context(), json.RawMessage(`{"no":"o-1","op":"refund"}`)), saga.ErrInvalidKey)
	assert.Empty(t, shop.reserved)
	require.NoError(t, handle(t.Context(), json.RawMessage(`{"no":"o-1","op":"checkout"}`)))
	assert.Len(t, shop.charged, 1)
}

func TestDetailIsTheInputOfEventBridge(t *testing.T) {
	request := sagalambda.Detail[order](keyAt(t, "detail.no", sagalambda.TenantAt("source")))
	key, in, err := request(events.EventBridgeEvent{Source: "shop", Detail: json.RawMessage(`{"no":"o-1","amount":12.0,"new":true}`)})
	require.NoError(t, err)
	assert.Equal(t, saga.Key{Tenant: "shop", ID: "o-1"}, key)
	assert.Equal(t, order{No: "o-1", Amount: 12}, in)
	_, _, err = request(events.EventBridgeEvent{Source: "shop", Detail: json.RawMessage(`{"s3cret`)})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestAKeyPathIsForManyGoroutines(t *testing.T) {
	key := keyAt(t, "join('-', [a, b])")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				got, err := key.Key([]byte(`{"a":"x","b":"y"}`))
				assert.NoError(t, err)
				assert.Equal(t, "x-y", got.ID)
			}
		})
	}
	all.Wait()
}

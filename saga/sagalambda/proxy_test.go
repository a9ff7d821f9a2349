package sagalambda_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/saga/sagalambda"
)

// reply is an answer of any of the three forms, read as API Gateway reads it.
type reply struct {
	status int
	header http.Header
	body   string
}

func decoded(t *testing.T, body string, encoded bool) string {
	t.Helper()
	if !encoded {
		return body
	}
	raw, err := base64.StdEncoding.DecodeString(body)
	require.NoError(t, err)
	return string(raw)
}

func flat(fields map[string]string, cookies []string) http.Header {
	h := http.Header{}
	for name, value := range fields {
		h.Set(name, value)
	}
	for _, c := range cookies {
		h.Add("Set-Cookie", c)
	}
	return h
}

// forms send one POST to a handler in each form of event, straight and by [sagalambda.APIGateway].
var forms = map[string]func(t *testing.T, h http.Handler, header map[string]string, body string) reply{
	"v1": func(t *testing.T, h http.Handler, header map[string]string, body string) reply {
		got, err := sagalambda.APIGatewayV1(h)(t.Context(), v1Event(header, body))
		require.NoError(t, err)
		return reply{got.StatusCode, got.MultiValueHeaders, decoded(t, got.Body, got.IsBase64Encoded)}
	},
	"v2": func(t *testing.T, h http.Handler, header map[string]string, body string) reply {
		got, err := sagalambda.APIGatewayV2(h)(t.Context(), v2Event(header, body))
		require.NoError(t, err)
		return reply{got.StatusCode, flat(got.Headers, got.Cookies), decoded(t, got.Body, got.IsBase64Encoded)}
	},
	"function URL": func(t *testing.T, h http.Handler, header map[string]string, body string) reply {
		got, err := sagalambda.FunctionURL(h)(t.Context(), events.LambdaFunctionURLRequest{Version: "2.0", RawPath: "/orders", RawQueryString: "dry=1", Cookies: []string{"a=1", "b=2"}, Headers: header, Body: body,
			RequestContext: events.LambdaFunctionURLRequestContext{HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{Method: "POST", Path: "/orders", SourceIP: "192.0.2.1"}}})
		require.NoError(t, err)
		return reply{got.StatusCode, flat(got.Headers, got.Cookies), decoded(t, got.Body, got.IsBase64Encoded)}
	},
	"any, v1": func(t *testing.T, h http.Handler, header map[string]string, body string) reply {
		got, ok := any1(t, h, v1Event(header, body)).(events.APIGatewayProxyResponse)
		require.True(t, ok)
		return reply{got.StatusCode, got.MultiValueHeaders, decoded(t, got.Body, got.IsBase64Encoded)}
	},
	"any, v2": func(t *testing.T, h http.Handler, header map[string]string, body string) reply {
		got, ok := any1(t, h, v2Event(header, body)).(events.APIGatewayV2HTTPResponse)
		require.True(t, ok)
		return reply{got.StatusCode, flat(got.Headers, got.Cookies), decoded(t, got.Body, got.IsBase64Encoded)}
	},
}

func any1(t *testing.T, h http.Handler, event any) any {
	t.Helper()
	raw, err := json.Marshal(event)
	require.NoError(t, err)
	got, err := sagalambda.APIGateway(h)(t.Context(), raw)
	require.NoError(t, err)
	return got
}

func v1Event(header map[string]string, body string) events.APIGatewayProxyRequest {
	multi := map[string][]string{"Cookie": {"a=1; b=2"}}
	for name, value := range header {
		multi[name] = []string{value}
	}
	return events.APIGatewayProxyRequest{Path: "/orders", HTTPMethod: "POST", Headers: header, MultiValueHeaders: multi, Body: body,
		QueryStringParameters: map[string]string{"dry": "1"}, MultiValueQueryStringParameters: map[string][]string{"dry": {"1"}},
		RequestContext: events.APIGatewayProxyRequestContext{Stage: "prod", Identity: events.APIGatewayRequestIdentity{SourceIP: "192.0.2.1"}}}
}

func v2Event(header map[string]string, body string) events.APIGatewayV2HTTPRequest {
	return events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/orders", RawQueryString: "dry=1", Cookies: []string{"a=1", "b=2"}, Headers: header, Body: body,
		RequestContext: events.APIGatewayV2HTTPRequestContext{HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST", Path: "/orders", SourceIP: "192.0.2.1"}}}
}

var usual = map[string]string{"host": "api.example.com", "content-type": "application/json", "idempotency-key": "k-1"}

func TestAHandlerSeesTheRequestAsItWas(t *testing.T) {
	for name, send := range forms {
		t.Run(name, func(t *testing.T) {
			got := send(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, "POST /orders?dry=1", r.Method+" "+r.URL.RequestURI())
				assert.Equal(t, r.URL.RequestURI(), r.RequestURI)
				assert.Equal(t, "api.example.com", r.Host)
				assert.Empty(t, r.Header.Get("Host"))
				assert.Equal(t, "k-1", r.Header.Get("Idempotency-Key"))
				assert.Equal(t, "192.0.2.1:0", r.RemoteAddr)
				assert.Equal(t, "the body", string(body))
				assert.EqualValues(t, 8, r.ContentLength)
				b, err := r.Cookie("b")
				if assert.NoError(t, err) {
					assert.Equal(t, "2", b.Value)
				}
				w.Header().Add("Allow", "GET")
				w.Header().Add("Allow", "HEAD")
				http.SetCookie(w, &http.Cookie{Name: "c", Value: "3"})
				http.SetCookie(w, &http.Cookie{Name: "d", Value: "4"})
				w.WriteHeader(http.StatusAccepted)
				w.Header().Set("Too-Late", "1")
				w.WriteHeader(http.StatusTeapot)
				_, _ = w.Write([]byte("\xff\xfe"))
			}), usual, "the body")
			assert.Equal(t, http.StatusAccepted, got.status)
			assert.Equal(t, "\xff\xfe", got.body, "what is no text goes as base64")
			assert.Equal(t, []string{"c=3", "d=4"}, got.header.Values("Set-Cookie"))
			assert.Contains(t, []string{"GET, HEAD", "GET"}, got.header.Get("Allow"))
			assert.Empty(t, got.header.Get("Too-Late"))
		})
	}
}

func TestSagasBehindAPIGateway(t *testing.T) {
	for name, send := range forms {
		t.Run(name, func(t *testing.T) {
			shop := &shop{}
			h := sagahttp.Handler(sagalambda.Runner(shop.on(t, newStore())), sagahttp.Request[order](nil))
			first := send(t, h, usual, text(t, "o-1"))
			assert.Equal(t, http.StatusCreated, first.status)
			assert.JSONEq(t, `"ch-o-1"`, first.body)
			again := send(t, h, usual, text(t, "o-1"))
			assert.Equal(t, first.status, again.status)
			assert.Equal(t, first.body, again.body)
			assert.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
			assert.Len(t, shop.charged, 1)
			assert.Equal(t, http.StatusUnprocessableEntity, send(t, h, usual, text(t, "o-2")).status, "the same key with other content")
			assert.Equal(t, http.StatusBadRequest, send(t, h, map[string]string{"content-type": "application/json"}, text(t, "o-1")).status, "no key")
			joined := map[string]string{"content-type": "application/json", "idempotency-key": "k-1,k-1"}
			assert.Equal(t, http.StatusBadRequest, send(t, h, joined, text(t, "o-1")).status, "a repeated field comes joined")
		})
	}
}

func TestAKeyInTwoSpellingsIsRepeated(t *testing.T) {
	type single = map[string]string
	type multi = map[string][]string
	shop := &shop{}
	h := sagahttp.Handler(sagalambda.Runner(shop.on(t, newStore())), sagahttp.Request[order](nil))
	for name, tc := range map[string]struct {
		single single
		multi  multi
	}{
		"many values":     {nil, multi{"Idempotency-Key": {"a"}, "idempotency-key": {"b"}}},
		"one value":       {single{"Idempotency-Key": "a", "idempotency-key": "b"}, nil},
		"the same value":  {single{"Idempotency-Key": "a", "idempotency-key": "a"}, nil},
		"both lists":      {single{"Idempotency-Key": "a", "idempotency-key": "b"}, multi{"Idempotency-Key": {"a"}, "idempotency-key": {"b"}}},
		"one list each":   {single{"idempotency-key": "b"}, multi{"Idempotency-Key": {"a"}}},
		"a value in each": {single{"Idempotency-Key": "b"}, multi{"Idempotency-Key": {"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // a map's order would differ
				got, err := sagalambda.APIGatewayV1(h)(t.Context(), events.APIGatewayProxyRequest{Path: "/", HTTPMethod: "POST", Headers: tc.single, MultiValueHeaders: tc.multi, Body: text(t, "o-1")})
				require.NoError(t, err)
				require.Equal(t, http.StatusBadRequest, got.StatusCode, got.Body)
				require.Contains(t, got.Body, "repeated")
			}
		})
	}
	got, err := sagalambda.APIGatewayV2(h)(t.Context(), v2Event(single{"Idempotency-Key": "a", "idempotency-key": "b"}, text(t, "o-1")))
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, got.StatusCode)
	assert.Empty(t, shop.charged)
}

func TestWhatBothListsOfAnEventTellIsNoRepetition(t *testing.T) {
	for name, multi := range map[string]map[string][]string{
		"the same spelling": {"Idempotency-Key": {"a"}, "Accept": {"x", "y"}},
		"another spelling":  {"idempotency-key": {"a"}, "accept": {"x", "y"}},
		"an empty list":     {"Idempotency-Key": {}, "Accept": {"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				assert.Equal(t, []string{"a"}, r.Header.Values("Idempotency-Key"))
				assert.Equal(t, []string{"x", "y"}, r.Header.Values("Accept"))
				assert.Equal(t, []string{"1"}, r.Header.Values("Only-Once"))
			})
			_, err := sagalambda.APIGatewayV1(h)(t.Context(), events.APIGatewayProxyRequest{Path: "/", HTTPMethod: "POST", MultiValueHeaders: multi,
				Headers: map[string]string{"Idempotency-Key": "a", "Accept": "y", "Only-Once": "1"}})
			require.NoError(t, err)
		})
	}
}

func TestEveryKindOfErrorBehindAPIGateway(t *testing.T) {
	want := map[error]int{nil: 201, saga.ErrFailed: 422, saga.ErrBlocked: 500, saga.ErrInProgress: 409, saga.ErrInterrupted: 503, saga.ErrReversed: 422,
		saga.ErrPayloadMismatch: 422, saga.ErrLeaseLost: 409, saga.ErrDefinitionChanged: 500, saga.ErrInvalidKey: 400, saga.ErrInvalidInput: 400,
		saga.ErrTooLarge: 413, saga.ErrStore: 503, saga.ErrNotFound: 404, saga.ErrNotAllowed: 409}
	for name, send := range forms {
		for _, row := range table {
			var err error
			if row.kind != nil {
				err = &saga.Error{Kind: row.kind, Err: errors.New("s3cret")}
			}
			got := send(t, sagahttp.Handler(sagalambda.Runner(always(err)), sagahttp.Request[order](nil)), usual, text(t, "o-1"))
			assert.Equal(t, want[row.kind], got.status, "%v over %s", row.kind, name)
			assert.NotContains(t, got.body, "s3cret")
		}
	}
}

func TestTheAuthorizersFindingsAreInTheContext(t *testing.T) {
	e := v1Event(usual, text(t, "o-1"))
	e.RequestContext.Authorizer = map[string]any{"tenant": "tenant-a"}
	tenant := func(r *http.Request) (string, error) {
		event, ok := sagalambda.EventFrom[events.APIGatewayProxyRequest](r.Context())
		who, _ := event.RequestContext.Authorizer["tenant"].(string)
		if !ok || who == "" {
			return "", sagahttp.Status(http.StatusUnauthorized, nil)
		}
		return who, nil
	}
	store := newStore()
	h := sagahttp.Handler(sagalambda.Runner(new(shop).on(t, store)), sagahttp.Request[order](tenant))
	got, err := sagalambda.APIGatewayV1(h)(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, http.StatusCreated, got.StatusCode)
	_, err = store.Get(t.Context(), saga.Key{Tenant: "tenant-a", Operation: "checkout", ID: "k-1"}.String())
	require.NoError(t, err)
	_, ok := sagalambda.EventFrom[events.APIGatewayV2HTTPRequest](t.Context())
	assert.False(t, ok)
	assert.Equal(t, http.StatusUnauthorized, forms["v2"](t, h, usual, text(t, "o-1")).status)
}

func TestEventsThatAreNoGoodRequests(t *testing.T) {
	log := &logged{}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	handle := sagalambda.APIGateway(h, sagalambda.WithLogger(log.logger()))
	for _, raw := range []string{`{`, `[]`, `{}`, `{"version":"2.0","headers":7}`, `{"httpMethod":"GET","headers":7}`} {
		_, err := handle(t.Context(), json.RawMessage(raw))
		require.ErrorContains(t, err, "no HTTP request", raw)
	}
	for _, raw := range []string{`{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"B AD"}}}`,
		`{"version":"2.0","rawPath":"/","body":"s3cret!","isBase64Encoded":true,"requestContext":{"http":{"method":"POST"}}}`} {
		got, err := handle(t.Context(), json.RawMessage(raw))
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, got.(events.APIGatewayV2HTTPResponse).StatusCode, raw)
	}
	assert.NotContains(t, log.text(), "s3cret")
	for path, want := range map[string]string{"": "/", "orders": "/orders", "/a b": "/a%20b", "/a%2Fb": "/a%2Fb", "//evil.example/x": "//evil.example/x"} {
		seen := ""
		_, err := sagalambda.FunctionURL(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.URL.EscapedPath() }))(t.Context(),
			events.LambdaFunctionURLRequest{RawPath: path, RequestContext: events.LambdaFunctionURLRequestContext{HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{Method: "GET"}}})
		require.NoError(t, err)
		assert.Equal(t, want, seen, path)
	}
}

func TestAPathIsDecodedOnce(t *testing.T) {
	type event = func(path string) any
	rest := func(path string) any {
		return events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: path}
	}
	v2 := func(domain string) event {
		return func(path string) any {
			return events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, RawQueryString: "q=%3F", RequestContext: events.APIGatewayV2HTTPRequestContext{
				DomainName: domain, HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "GET"}}}
		}
	}
	httpAPI, functionURL := v2("abc123.execute-api.eu-west-1.amazonaws.com"), v2("abc123.lambda-url.eu-west-1.on.aws")
	for _, tc := range []struct {
		event                   event
		raw, path, escaped, why string
	}{
		{httpAPI, "/orders/a b", "/orders/a b", "/orders/a%20b", "API Gateway has decoded it"},
		{httpAPI, "/orders/a%2Fb", "/orders/a%2Fb", "/orders/a%252Fb", "a % is one"},
		{httpAPI, "/orders/a?b#c", "/orders/a?b#c", "/orders/a%3Fb%23c", "no query and no fragment"},
		{httpAPI, "/orders/100%", "/orders/100%", "/orders/100%25", ""},
		{functionURL, "/orders/a%20b", "/orders/a b", "/orders/a%20b", "it comes as it was sent"},
		{functionURL, "/orders/a%2Fb", "/orders/a/b", "/orders/a%2Fb", "the spelling is kept"},
		{functionURL, "//evil.example/a%3Fb", "//evil.example/a?b", "//evil.example/a%3Fb", "no host"},
		{rest, "/orders/a%2Fb", "/orders/a/b", "/orders/a%2Fb", "it comes as it was sent"},
		{rest, "/orders/a?b", "/orders/a?b", "/orders/a%3Fb", "which only an HTTP API hands over so"},
		{rest, "/orders/100%", "/orders/100%", "/orders/100%25", "nothing to decode"},
		{rest, "orders/a%2Fb", "/orders/a/b", "/orders/a%2Fb", ""},
	} {
		ran := false
		any1(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			assert.Equal(t, tc.path, r.URL.Path, "%s: %s", tc.raw, tc.why)
			assert.Equal(t, tc.escaped, r.URL.EscapedPath(), "%s: %s", tc.raw, tc.why)
			again, err := url.ParseRequestURI(r.RequestURI)
			if assert.NoError(t, err) && again.Host == "" {
				assert.Equal(t, tc.path, again.Path)
			}
		}), tc.event(tc.raw))
		assert.True(t, ran)
	}
}

func TestAHandlersPanicIsAnsweredWith500(t *testing.T) {
	log := &logged{}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		panic("s3cret")
	})
	got, err := sagalambda.APIGatewayV2(h, sagalambda.WithLogger(log.logger()))(invocation(t, time.Minute), v2Event(usual, ""))
	require.NoError(t, err)
	assert.Equal(t, http.StatusInternalServerError, got.StatusCode)
	assert.NotContains(t, got.Body, "s3cret")
	assert.NotContains(t, log.text(), "s3cret")
	_, err = sagalambda.APIGatewayV1(nil)(t.Context(), v1Event(usual, ""))
	require.ErrorContains(t, err, "the HTTP handler is nil")
}

package sagalambda

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

var errNoRequest = errors.New("sagalambda: the event is no HTTP request of API Gateway or of a function URL")

// APIGateway serves an HTTP handler, usually one of package sagahttp, behind API Gateway: a REST API, an HTTP API with
// payload format 1.0 or 2.0, or a function URL. Which of them it is, the event tells; [APIGatewayV1], [APIGatewayV2] and
// [FunctionURL] are for one each.
//
//	lambda.Start(sagalambda.APIGateway(sagahttp.Handler(sagalambda.Runner(checkout), sagahttp.Request[Order](tenantOf))))
//
// The event is in the request's context, for what an authorizer has found out ([EventFrom]); it is an
// events.APIGatewayProxyRequest or an events.APIGatewayV2HTTPRequest, the latter for function URLs too. A handler's panic
// is answered with 500. Of the options only [WithLogger] counts.
func APIGateway(h http.Handler, opts ...Option) func(context.Context, json.RawMessage) (any, error) {
	p := newProxy(h, opts)
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var form struct {
			Version    string `json:"version"`
			HTTPMethod string `json:"httpMethod"`
		}
		if json.Unmarshal(raw, &form) != nil {
			return nil, errNoRequest
		}
		switch {
		case form.Version == "2.0":
			return typed(ctx, raw, p.v2)
		case form.HTTPMethod != "":
			return typed(ctx, raw, p.v1)
		}
		return nil, errNoRequest
	}
}

func typed[T, R any](ctx context.Context, raw json.RawMessage, serve func(context.Context, T) (R, error)) (any, error) {
	var event T
	if json.Unmarshal(raw, &event) != nil {
		return nil, errNoRequest
	}
	return serve(ctx, event)
}

// APIGatewayV1 is [APIGateway] for REST APIs, and for HTTP APIs with payload format 1.0.
func APIGatewayV1(h http.Handler, opts ...Option) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	return newProxy(h, opts).v1
}

// APIGatewayV2 is [APIGateway] for HTTP APIs with payload format 2.0. The path has the stage's name, unless it is $default.
// API Gateway has percent-decoded it: a slash in it may have been %2F, and a % is one.
func APIGatewayV2(h http.Handler, opts ...Option) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return newProxy(h, opts).v2
}

// FunctionURL is [APIGateway] for function URLs whose invoke mode is BUFFERED. [EventFrom] finds an
// events.LambdaFunctionURLRequest.
func FunctionURL(h http.Handler, opts ...Option) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return newProxy(h, opts).url
}

func (p *proxy) v1(ctx context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	answer, err := p.serve(ctx, &incoming{event: e, method: e.HTTPMethod, path: e.Path, query: queryOf(e), header: repeatedHeaderOf(e),
		source: e.RequestContext.Identity.SourceIP, body: e.Body, encoded: e.IsBase64Encoded})
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	body, encoded := answer.content()
	return events.APIGatewayProxyResponse{StatusCode: answer.status, MultiValueHeaders: answer.sent, Body: body, IsBase64Encoded: encoded}, nil
}

func (p *proxy) v2(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	// An HTTP API has decoded the path, and a function URL has not.
	decoded := !strings.Contains(e.RequestContext.DomainName, ".lambda-url.")
	answer, err := p.serve(ctx, &incoming{event: e, method: e.RequestContext.HTTP.Method, path: e.RawPath, decoded: decoded, query: e.RawQueryString,
		header: headerOf(e.Headers, e.Cookies), source: e.RequestContext.HTTP.SourceIP, body: e.Body, encoded: e.IsBase64Encoded})
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	body, encoded := answer.content()
	header, cookies := answer.joined()
	return events.APIGatewayV2HTTPResponse{StatusCode: answer.status, Headers: header, Cookies: cookies, Body: body, IsBase64Encoded: encoded}, nil
}

func (p *proxy) url(ctx context.Context, e events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	answer, err := p.serve(ctx, &incoming{event: e, method: e.RequestContext.HTTP.Method, path: e.RawPath, query: e.RawQueryString,
		header: headerOf(e.Headers, e.Cookies), source: e.RequestContext.HTTP.SourceIP, body: e.Body, encoded: e.IsBase64Encoded})
	if err != nil {
		return events.LambdaFunctionURLResponse{}, err
	}
	body, encoded := answer.content()
	header, cookies := answer.joined()
	return events.LambdaFunctionURLResponse{StatusCode: answer.status, Headers: header, Cookies: cookies, Body: body, IsBase64Encoded: encoded}, nil
}

package dynamotest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
)

// Variable names the endpoint of the server, such as http://127.0.0.1:8000.
const Variable = "DYNAMODB_ENDPOINT"

// Endpoint is the server's endpoint. Without one the test is skipped, and says how to get one; under CI=true it fails.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	if e := os.Getenv(Variable); e != "" {
		return strings.TrimSuffix(e, "/")
	}
	missing := Variable + " is not set, so this was not tested. Run: export " + Variable + "=$(bash .ci/servers/dynalite/start)"
	if os.Getenv("CI") == "true" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
	return ""
}

// Client is the SDK's client for an endpoint, which tries again soon. Its connections end with the test.
func Client(tb testing.TB, endpoint string, opts ...func(*dynamodb.Options)) *dynamodb.Client {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	tb.Cleanup(transport.CloseIdleConnections)
	return NewClient(endpoint, transport, opts...)
}

// NewClient is Client outside of a test.
func NewClient(endpoint string, transport http.RoundTripper, opts ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient:   &http.Client{Transport: transport},
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxBackoff = 5 * time.Millisecond
			o.RateLimiter = unlimited{}
		}),
	}, opts...)
}

// unlimited lets every retry through: the SDK's own limit is for a service that is down for long.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (unlimited) AddTokens(uint) error { return nil }

var tables atomic.Int64

// TableName is a name that no other test uses, not even of another run on the same server. The table, if the test makes
// one, is deleted after it.
func TableName(tb testing.TB) string {
	tb.Helper()
	client := Client(tb, Endpoint(tb)) // what a test has broken stands in nobody's way
	name := fmt.Sprintf("tsuzuki-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), tables.Add(1))
	tb.Cleanup(func() {
		_, err := client.DeleteTable(context.WithoutCancel(tb.Context()), &dynamodb.DeleteTableInput{TableName: &name})
		if err != nil && !strings.Contains(err.Error(), "ResourceNotFoundException") {
			require.NoError(tb, err)
		}
	})
	return name
}

// Package brokertest holds stand-ins for brokers, for tests: HTTP servers that speak the protocols of EventBridge and
// Lambda, hold to the documented limits and answer per entry, and the way to the SQS and SNS server of the tests.
package brokertest

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Config is an SDK configuration for a server on this machine. It tries every request once. Connections are closed when
// the test ends.
func Config(t testing.TB, endpoint string) aws.Config {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return aws.Config{
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		BaseEndpoint: aws.String(endpoint),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
		HTTPClient:   &http.Client{Transport: transport},
	}
}

// Endpoint is the endpoint that the environment names. Without one the test is skipped, and under CI it fails.
func Endpoint(t testing.TB, variable string) string {
	t.Helper()
	if e := os.Getenv(variable); e != "" {
		return e
	}
	if ci := os.Getenv("CI"); ci != "" && !strings.EqualFold(ci, "false") {
		t.Fatalf("%s is not set: .ci/servers/fauxqs/start starts a server", variable)
	}
	t.Skipf("NOT TESTED: %s is not set; bash .ci/servers/fauxqs/start 14566, then %s=http://127.0.0.1:14566", variable, variable)
	return ""
}

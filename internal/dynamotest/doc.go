// Package dynamotest is test code: it reaches the DynamoDB server that the tests run against, and puts a proxy before it.
//
// The server's endpoint comes from the environment variable DYNAMODB_ENDPOINT; .ci/servers/dynalite starts one. The proxy
// adds what local servers lack, the old item on a failed condition and the expiry calls, and it breaks what a test wants
// broken: answers that are lost after the write, errors before and after it, throttling, slowness, an index that lags.
package dynamotest

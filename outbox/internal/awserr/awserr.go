// Package awserr tells what an error of an AWS service says about a message: refused, or only that the service is not
// taking messages just now.
package awserr

import (
	"errors"
	"net/http"
	"strings"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Refused tells whether err, of a whole request, is a refusal: trying the same again is no use until a person has changed
// something (the message, a permission, a target that is missing). Everything else is an outage: no connection, no answer,
// throttling, the service's own errors, and credentials that have expired or are not yet known, since that says nothing
// about the message.
func Refused(err error) bool {
	var invalid smithy.InvalidParamsError
	if errors.As(err, &invalid) { // the SDK's own check, before anything was sent
		return true
	}
	var api smithy.APIError
	if !errors.As(err, &api) || passing(api.ErrorCode()) || api.ErrorFault() == smithy.FaultServer {
		return false
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		status := answer.HTTPStatusCode()
		return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout &&
			status != http.StatusConflict // being updated
	}
	return true
}

// Target tells of a refusal whether it speaks of the target or the permission to use it, and so holds for every message.
func Target(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	return contains(api.ErrorCode(), "accessdenied", "authorization", "notauthorized", "nonexistent", "notfound", "doesnotexist", "kms", "optin")
}

// RefusedEntry is Refused for one entry of a request that was accepted as a whole.
func RefusedEntry(code string, senderFault bool) bool { return senderFault && !passing(code) }

// passing are codes that say nothing about the message, whatever status they come with. They are those of the common
// errors of AWS APIs and of SQS, SNS, EventBridge and Lambda.
func passing(code string) bool {
	return contains(code,
		"throttl", "toomanyrequests", "requestlimitexceeded", "slowdown", "overlimit", "bandwidthlimit",
		"internal", "unavailable", "serviceexception", "timeout",
		"expiredtoken", "tokenrefresh", "requestexpired", "timetooskewed", "unrecognizedclient", "invalidclienttokenid",
		"signature", "missingauthenticationtoken", "notready",
		"unknownerror", // the SDK's word for an answer that is not the service's, such as a proxy's
	)
}

// contains looks for one of the parts in the code, "AWS.SimpleQueueService.X" and the like included.
func contains(code string, parts ...string) bool {
	code = strings.ToLower(code[strings.LastIndexByte(code, '.')+1:])
	for _, part := range parts {
		if strings.Contains(code, part) {
			return true
		}
	}
	return false
}

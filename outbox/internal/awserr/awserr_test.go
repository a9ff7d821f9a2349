package awserr_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"

	"github.com/tsuzuki-go/tsuzuki/outbox/internal/awserr"
)

func answer(status int, code string, fault smithy.ErrorFault) error {
	return &smithy.OperationError{ServiceID: "SQS", OperationName: "X", Err: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err:      &smithy.GenericAPIError{Code: code, Fault: fault},
	}}
}

func TestRefused(t *testing.T) {
	for code, status := range map[string]int{
		"AccessDenied": 403, "AccessDeniedException": 400, "AuthorizationError": 403, "AWS.SimpleQueueService.NonExistentQueue": 400,
		"ResourceNotFoundException": 404, "NotFound": 404, "InvalidMessageContents": 400, "InvalidParameterValueException": 400,
		"RequestTooLargeException": 413, "ValidationException": 400, "KMS.DisabledException": 400, "RecursiveInvocationException": 400,
	} {
		assert.True(t, awserr.Refused(answer(status, code, smithy.FaultClient)), code)
		assert.True(t, awserr.Refused(fmt.Errorf("wrapped: %w", answer(status, code, smithy.FaultUnknown))), code)
	}
	for code, status := range map[string]int{
		"Throttling": 400, "ThrottlingException": 400, "RequestThrottled": 403, "TooManyRequestsException": 429, "OverLimit": 403,
		"KmsThrottled": 400, "InternalError": 500, "ServiceUnavailable": 503, "InternalFailure": 500, "ServiceException": 500,
		"ExpiredToken": 403, "ExpiredTokenException": 400, "UnrecognizedClientException": 400, "InvalidClientTokenId": 403,
		"SignatureDoesNotMatch": 403, "RequestTimeTooSkewed": 403, "RequestExpired": 400, "MissingAuthenticationToken": 403,
		"ResourceConflictException": 409, "ResourceNotReadyException": 502, "UnknownError": 403, "Anything": 502, "Other": 429,
	} {
		assert.False(t, awserr.Refused(answer(status, code, smithy.FaultClient)), code)
	}
	assert.False(t, awserr.Refused(answer(400, "Odd", smithy.FaultServer)))
	assert.False(t, awserr.Refused(errors.New("dial tcp: connection refused")))
	assert.False(t, awserr.Refused(context.DeadlineExceeded))
	assert.True(t, awserr.Refused(&smithy.OperationError{Err: smithy.InvalidParamsError{}}), "the SDK's own check")
	assert.True(t, awserr.Refused(&smithy.GenericAPIError{Code: "InvalidArgument"}), "no status known")
}

func TestTarget(t *testing.T) {
	for _, code := range []string{"AccessDenied", "AuthorizationError", "NonExistentQueue", "QueueDoesNotExist", "NotFound", "KMSDisabled", "NotAuthorizedForSourceException"} {
		assert.True(t, awserr.Target(answer(400, code, smithy.FaultClient)), code)
	}
	assert.False(t, awserr.Target(answer(400, "InvalidParameterValue", smithy.FaultClient)))
	assert.False(t, awserr.Target(errors.New("x")))
}

func TestRefusedEntry(t *testing.T) {
	assert.True(t, awserr.RefusedEntry("InvalidMessageContents", true))
	assert.False(t, awserr.RefusedEntry("ThrottlingException", true))
	assert.False(t, awserr.RefusedEntry("InternalError", false))
}

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// refused is the item that made a condition fail, nil when the server did not send it. ok is false for other errors.
func refused(err error) (it item, ok bool) {
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		return nil, false
	}
	return failed.Item, true
}

// wrap says what was being done, to which run, and, where that is known, what helps.
func (s *Store) wrap(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	if tooLarge(err) {
		return fmt.Errorf("dynamostore: %s run %s: the header has more than 400 KiB: %w: %w", verb, key, state.ErrTooLarge, err)
	}
	if help := advice(err); help != "" {
		return fmt.Errorf("dynamostore: %s run %s in table %s: %s: %w", verb, key, s.table, help, err)
	}
	return fmt.Errorf("dynamostore: %s run %s in table %s: %w", verb, key, s.table, err)
}

// tooLarge tells whether the server has refused an item for its size, which it says in a ValidationException's text alone.
func tooLarge(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "ValidationException" {
		return false
	}
	text := strings.ToLower(api.ErrorMessage())
	return strings.Contains(text, "item size") && strings.Contains(text, "exceeded")
}

// help is what to do about the errors of the server, by their codes.
var help = map[string]string{
	"ResourceNotFoundException": "there is no such table in this account and region; make it with dynamostore.CreateTable or " +
		"a template in docs/infra",
	"AccessDeniedException":                  "the credentials don't allow this; docs/infra has the policy",
	"UnrecognizedClientException":            "the credentials are not known",
	"InvalidClientTokenId":                   "the credentials are not known",
	"MissingAuthenticationTokenException":    "there are no credentials",
	"ExpiredTokenException":                  "the credentials have expired",
	"ExpiredToken":                           "the credentials have expired",
	"IncompleteSignature":                    "the request's signature is incomplete; something on the way has changed it",
	"ProvisionedThroughputExceededException": throttled,
	"ThrottlingException":                    throttled,
	"RequestLimitExceeded":                   throttled,
	"TransactionConflictException":           "a transaction of someone else is writing to the item; nothing here uses transactions",
	"RequestTimeTooSkewed":                   skewed,
	"RequestExpired":                         skewed,
	"KMSAccessDeniedException":               "the credentials may not use the table's encryption key",
}

const (
	throttled = "throttled; come back later, or raise the table's capacity"
	skewed    = "this machine's clock is wrong; set it"
)

func advice(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		switch {
		case errors.Is(err, context.Canceled):
			return "the caller stopped waiting"
		case errors.Is(err, context.DeadlineExceeded): // of an HTTP client's own timeout, too
			return "no answer in time, be it the caller's or the HTTP client's"
		}
		var failed *smithy.OperationError
		if errors.As(err, &failed) {
			return "no answer from the server; see the endpoint, the region, the credentials and the network"
		}
		return ""
	}
	code, text := api.ErrorCode(), api.ErrorMessage()
	// A wrong clock shows as a signature that is not valid yet, or no more.
	if code == "InvalidSignatureException" {
		if strings.Contains(text, "Signature expired") || strings.Contains(text, "Signature not yet current") {
			return skewed
		}
		return "the secret key is wrong, or something on the way has changed the request"
	}
	if code == "ValidationException" && strings.Contains(text, "specified index") {
		return "the table lacks the index of open runs; dynamostore.Check says how to add it"
	}
	return help[code]
}

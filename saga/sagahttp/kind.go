package sagahttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/tsuzuki-go/tsuzuki/saga"
)

// DefaultTypes is the base of the problems' types when [WithTypes] says nothing: the page that explains each.
const DefaultTypes = "https://github.com/tsuzuki-go/tsuzuki/blob/main/docs/http.md#"

// kind is a kind of problem. Nothing in it depends on the run.
type kind struct {
	slug   string // the end of its type
	status int
	title  string
	detail string
	retry  bool // the same request again, later, is what to do: the answer has Retry-After
}

// Each is explained in docs/http.md, under its slug; a test compares them.
var (
	kindKeyMissing = kind{slug: "key-missing", status: http.StatusBadRequest, title: "Idempotency-Key is missing",
		detail: "This operation needs an Idempotency-Key: make one, and send the same one with every repetition."}
	kindKeyInvalid = kind{slug: "key-invalid", status: http.StatusBadRequest, title: "The key is not acceptable"}
	kindKeyReused  = kind{slug: "key-reused", status: http.StatusUnprocessableEntity, title: "The key was used with other content",
		detail: "A request with this key and other content came before. A new request needs a new key."}
	kindBody     = kind{slug: "body-invalid", status: http.StatusBadRequest, title: "The content is not acceptable"}
	kindTooLarge = kind{slug: "too-large", status: http.StatusRequestEntityTooLarge, title: "The content is too large"}
	kindMedia    = kind{slug: "media-type", status: http.StatusUnsupportedMediaType, title: "The content must be JSON",
		detail: "Send it as application/json in UTF-8, without a content encoding."}
	kindMethod  = kind{slug: "method", status: http.StatusMethodNotAllowed, title: "The method is not allowed"}
	kindRefused = kind{slug: "refused", status: http.StatusBadRequest, title: "The request was refused"}

	kindInProgress = kind{slug: "in-progress", status: http.StatusConflict, title: "The request is being worked on", retry: true,
		detail: "Send the same request again after the time in Retry-After."}
	kindInterrupted = kind{slug: "interrupted", status: http.StatusServiceUnavailable, title: "The operation was interrupted", retry: true,
		detail: "Its progress is kept. Send the same request again after the time in Retry-After, and it goes on."}
	kindUnavailable = kind{slug: "unavailable", status: http.StatusServiceUnavailable, title: "The service is unavailable", retry: true,
		detail: "Send the same request again after the time in Retry-After."}
	kindFailed = kind{slug: "failed", status: http.StatusUnprocessableEntity, title: "The operation has failed",
		detail: "It will not be tried again under this key, which gives this answer from now on."}
	kindReversed = kind{slug: "reversed", status: http.StatusUnprocessableEntity, title: "The operation was undone",
		detail: "It was completed and later undone on purpose. This key gives this answer from now on."}
	kindBlocked = kind{slug: "blocked", status: http.StatusInternalServerError, title: "The operation needs an operator",
		detail: "It can't go on by itself. Sending the request again does not help before an operator has looked at it."}
	kindNotFound   = kind{slug: "not-found", status: http.StatusNotFound, title: "There is no such operation"}
	kindNotAllowed = kind{slug: "not-allowed", status: http.StatusConflict, title: "This is not possible now"}
	kindInternal   = kind{slug: "internal", status: http.StatusInternalServerError, title: "Internal error"}
)

func kinds() []kind {
	return []kind{kindKeyMissing, kindKeyInvalid, kindKeyReused, kindBody, kindTooLarge, kindMedia, kindMethod, kindRefused,
		kindInProgress, kindInterrupted, kindUnavailable, kindFailed, kindReversed, kindBlocked, kindNotFound, kindNotAllowed, kindInternal}
}

// ofRun are the kinds of the errors of a run.
var ofRun = []struct {
	err error
	is  *kind
}{
	{saga.ErrInProgress, &kindInProgress},
	{saga.ErrLeaseLost, &kindInProgress}, // for the client it is the same: another holder is at work
	{saga.ErrInterrupted, &kindInterrupted},
	{saga.ErrFailed, &kindFailed},
	{saga.ErrReversed, &kindReversed},
	{saga.ErrBlocked, &kindBlocked},
	{saga.ErrPayloadMismatch, &kindKeyReused},
	{saga.ErrDefinitionChanged, &kindInternal},
	{saga.ErrInvalidKey, &kindKeyInvalid},
	{saga.ErrInvalidInput, &kindBody},
	{saga.ErrTooLarge, &kindTooLarge},
	{saga.ErrStore, &kindUnavailable},
	{saga.ErrNotFound, &kindNotFound},
	{saga.ErrNotAllowed, &kindNotAllowed},
	{context.DeadlineExceeded, &kindUnavailable},
	{context.Canceled, &kindUnavailable},
}

// kindOf is the kind of a run's error. The Kind of a *saga.Error counts before whatever it wraps: an interruption may
// wrap the store's error.
func kindOf(err error) kind {
	var e *saga.Error
	if errors.As(err, &e) && e != nil && e.Kind != nil {
		err = e.Kind
	}
	for _, row := range ofRun {
		if errors.Is(err, row.err) {
			return *row.is
		}
	}
	return kindInternal
}

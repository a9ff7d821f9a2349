package webhook

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/httpretry"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/dispatch"
)

// judge says what an answer means: nil is sent.
func judge(resp *http.Response, target string) *dispatch.Failure {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	err := error(&StatusError{URL: redacted(target), Code: code})
	switch {
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		wait, _ := httpretry.FromHeader(resp.Header, time.Now())
		return &dispatch.Failure{Err: &later{err, wait}}
	}
	return &dispatch.Failure{Err: err, Refused: true}
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	// URL that was asked, without user, query and fragment.
	URL string
	// Code is the status code.
	Code int
}

// Error says the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("webhook: %s answers %d %s", e.URL, e.Code, http.StatusText(e.Code))
}

// later is an error that says when to try again.
type later struct {
	error
	wait time.Duration
}

// RetryAfter is what the receiver asked for; 0: nothing.
func (l *later) RetryAfter() time.Duration { return l.wait }

func (l *later) Unwrap() error { return l.error }

// mostDrained is how much of an answer's body is read so that the connection can be used again.
const mostDrained = 64 << 10

func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, mostDrained)
	_ = resp.Body.Close()
}

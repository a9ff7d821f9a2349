package steps

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/httpretry"
)

// CheckResponse turns the status of a participant's answer into the right class of error, for a step to return:
//
//	resp, err := client.Do(req)
//	if err != nil {
//		return receipt, err // transient: nobody knows whether it arrived
//	}
//	defer resp.Body.Close()
//	if err := steps.CheckResponse(resp); err != nil {
//		return receipt, err
//	}
//
// 2xx is nil. 408, 409 (for an idempotency key: a call with the same key is still at work), 425, 429 and 5xx are
// transient, and Retry-After, in seconds or as a date, becomes [RetryAfter], believed up to 24 hours. Any other 4xx is
// [Permanent]: the participant has refused the call, it did not take effect. A status outside of these is transient,
// without a Retry-After: a redirect that was not followed is no result, and none may be taken for "not applied" (303
// says that it was), so the outcome stays unknown.
//
// Every error has a code, "http_" and the status, such as "http_422"; [WithCode] around it gives a better one. The error
// names the method, the host and the status, and never what may be confidential: the path, the query, the reason phrase
// or the body. The body is neither read nor closed: a caller who needs to tell one refusal from another reads it, and
// closes it in any case.
//
// A nil response is a transient error. CheckResponse may be called concurrently.
func CheckResponse(resp *http.Response) error {
	if resp == nil {
		return errNoResponse
	}
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	err := error(&statusError{code: code, call: describe(resp.Request)})
	switch {
	case code >= 400 && code <= 599 && transient(code):
		if d, ok := httpretry.FromHeader(resp.Header, time.Now()); ok && d > 0 {
			err = RetryAfter(d, err)
		}
	case code >= 400 && code <= 499:
		err = Permanent(err)
	}
	return WithCode("http_"+strconv.Itoa(code), err)
}

var errNoResponse = errors.New("steps: CheckResponse was given no response; return the client's own error instead")

// transient tells of a status from 400 on whether the same call may succeed later.
func transient(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return code >= 500
}

type statusError struct {
	code int
	call string
}

func (e *statusError) Error() string {
	status := strconv.Itoa(e.code)
	if text := http.StatusText(e.code); text != "" {
		status += " " + text
	}
	return fmt.Sprintf("%sthe answer was %s", e.call, status)
}

// describe says where the call went. The host alone: paths and queries carry identifiers and secrets.
func describe(req *http.Request) string {
	if req == nil || req.URL == nil {
		return ""
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	return method + " " + req.URL.Host + ": "
}

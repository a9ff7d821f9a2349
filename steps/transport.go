package steps

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const idempotencyKeyHeader = "Idempotency-Key"

var _ http.RoundTripper = (*KeyTransport)(nil)

// KeyTransport is an [http.RoundTripper] that sets Idempotency-Key from the request's context ([IdempotencyKey]), so that
// a client used within a step sends the step's own key without being told:
//
//	client := &http.Client{Transport: &steps.KeyTransport{}}
//	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body) // ctx is what the step was given
//
// A request that has the field already is left as it is, and so is one whose context belongs to no step. A step that
// makes several calls must give each a key of its own (Run.Sub), else the participant takes the second for a repetition
// of the first. To send a request without any key, put a nil value in its header:
// req.Header["Idempotency-Key"] = nil.
//
// The key is sent bare, not as the quoted string of the IETF draft (draft-ietf-httpapi-idempotency-key-header): Stripe
// and the other providers that made the field what it is take the value literally, and a provider that knows the quoted
// form takes the bare one too, while not all do the reverse. It is sent byte for byte, so that it is equal to
// Outcome.Key, with which a compensation asks for it. A participant with a limit on length or characters needs
// [DerivedKey.Hashed], set on the request.
//
// The zero value is ready to use. It may be used concurrently, as far as Base may.
type KeyTransport struct {
	// Base makes the request. Nil: [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip sends the request with its key. The request itself is not changed. A key that no header field can carry
// unchanged (it begins or ends with a space, which is cut off on the way, so that two tenants would share a key) is
// refused before anything is sent; that error is [Permanent].
func (t *KeyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, ok := IdempotencyKey(req.Context())
	if !ok || hasKey(req.Header) {
		return t.base().RoundTrip(req)
	}
	if !travels(key) {
		err := fmt.Errorf("steps: KeyTransport: %s %s: the derived key can't be sent as %s: %w",
			req.Method, req.URL.Host, idempotencyKeyHeader, errKeyUnsendable)
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close()) // a RoundTripper closes the body, also on errors
		}
		return nil, Permanent(err)
	}
	clone := req.Clone(req.Context())
	if clone.Header == nil {
		clone.Header = make(http.Header, 1)
	}
	clone.Header.Set(idempotencyKeyHeader, key)
	return t.base().RoundTrip(clone)
}

var errKeyUnsendable = errors.New("it begins or ends with a space or has a control character; " +
	"set the field on the request, for example to DerivedKey().Hashed(52)")

// CloseIdleConnections is called by [http.Client.CloseIdleConnections] and passed on to Base.
func (t *KeyTransport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *KeyTransport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// hasKey looks past [http.Header.Get], which finds neither a nil value nor a name that someone spelled in lower case on
// purpose. An empty value is no key.
func hasKey(h http.Header) bool {
	for name, values := range h {
		if strings.EqualFold(name, idempotencyKeyHeader) && (len(values) == 0 || values[0] != "") {
			return true
		}
	}
	return false
}

// travels tells whether the key arrives as it is (RFC 9110, section 5.5): space around a field's value is not part of
// it, and control characters are refused. Control characters within a derived key are escaped already.
func travels(key string) bool {
	return key == strings.Trim(key, " \t") && strings.IndexFunc(key, func(r rune) bool { return r < 0x20 || r == 0x7f }) < 0
}

package sagahttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

type policyKey struct{}

// withPolicy lets JSON know the handler's options.
func (c *config) withPolicy(ctx context.Context) context.Context {
	return context.WithValue(ctx, policyKey{}, c)
}

func policyOf(ctx context.Context) *config {
	if c, ok := ctx.Value(policyKey{}).(*config); ok {
		return c
	}
	return &config{bodyLimit: DefaultBodyLimit}
}

// JSON is the request's content, decoded. Errors are answered by [Handler] with 400, 413 or 415, and never quote the
// content. Refused are: another media type than JSON (none at all is taken for JSON), a content encoding, what is no
// single JSON value, duplicate names, invalid UTF-8, and members that T has no field for unless [WithUnknownFields] is
// given. Numbers count by their value, so an integer takes 1.0 and 1e2; one that lands in an interface is a json.Number,
// so that it stays exact.
//
// It reads the content to its end; to use it elsewhere as well, read it first and put it back.
func JSON[T any](r *http.Request) (T, error) {
	var in T
	policy := policyOf(r.Context())
	if err := checkMedia(r.Header); err != nil {
		return in, err
	}
	raw, err := readBody(r, policy.bodyLimit)
	if err != nil {
		return in, err
	}
	canonical, err := state.Canonical(raw) // in which 1.0 is 1, so that an integer takes it, as the payload's hash does
	if err != nil {
		return in, badBody(sentence(strings.TrimPrefix(err.Error(), state.ErrInvalidInput.Error()+": ")))
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	if !policy.unknownFields {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(&in); err != nil {
		return in, badBody(whyUndecodable(err))
	}
	return in, nil
}

// Request is the request function of most handlers: the key from Idempotency-Key, the input from the JSON content, and
// the tenant from a function, which knows it from the authentication and whose errors are answered like a request
// function's own. A nil function: there is but one tenant, and every client may use every key.
func Request[In any](tenant func(*http.Request) (string, error)) func(*http.Request) (saga.Key, In, error) {
	return func(r *http.Request) (key saga.Key, in In, err error) {
		if tenant != nil {
			if key.Tenant, err = tenant(r); err != nil {
				return key, in, err
			}
		}
		if key.ID, err = IdempotencyKey(r); err != nil {
			return key, in, err
		}
		in, err = JSON[In](r)
		return key, in, err
	}
}

func badBody(detail string) error { return &Refusal{kind: &kindBody, Detail: detail} }

func checkMedia(h http.Header) error {
	refused := &Refusal{kind: &kindMedia}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return refused
	}
	given := h.Get("Content-Type")
	if given == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return refused
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return refused
	}
	return nil
}

func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, badBody("There is no content.")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Refusal{kind: &kindTooLarge, Detail: fmt.Sprintf("At most %d bytes are accepted.", tooLarge.Limit), Err: err}
	case err != nil:
		return nil, &Refusal{kind: &kindBody, Detail: "The content could not be read to its end.", Err: err}
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, badBody("There is no content.")
	}
	return raw, nil
}

// whyUndecodable says why JSON can't be decoded, without a word of its values or of Go's types.
func whyUndecodable(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		value, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
		if wrong.Field == "" {
			return fmt.Sprintf("It must not be a JSON %s.", value)
		}
		return fmt.Sprintf("%q can't take this JSON %s.", state.Cut(wrong.Field), value)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return "There is no member called " + state.Cut(strings.TrimPrefix(err.Error(), "json: unknown field ")) + "."
	}
	return "It is not what this operation takes."
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

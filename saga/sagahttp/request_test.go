package sagahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state"
)

func TestIdempotencyKey(t *testing.T) {
	const missing, invalid = "key-missing", "key-invalid"
	long := strings.Repeat("k", 255)
	for name, tc := range map[string]struct {
		fields []string
		key    string
		slug   string
	}{
		"bare":                            {[]string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, "8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
		"quoted":                          {[]string{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`}, "8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
		"quoted, with escapes":            {[]string{`"a\"b\\c"`}, `a"b\c`, ""},
		"quoted, with a comma":            {[]string{`"a, b"`}, "a, b", ""},
		"quoted, with parameters":         {[]string{`"a";v=1; x="y;z";flag`}, "a", ""},
		"space around":                    {[]string{"  a \t"}, "a", ""},
		"space around the quotes":         {[]string{` "a"  `}, "a", ""},
		"space within":                    {[]string{"order 1"}, "order 1", ""},
		"a derived key of another saga":   {[]string{"a#create_order#注文%2F1/charge"}, "a#create_order#注文%2F1/charge", ""},
		"a quote within the bare form":    {[]string{`a"b`}, `a"b`, ""},
		"255 characters":                  {[]string{long}, long, ""},
		"255 characters of several bytes": {[]string{strings.Repeat("注", 255)}, strings.Repeat("注", 255), ""},
		"255 characters, quoted":          {[]string{`"` + long + `"`}, long, ""},
		"none":                            {nil, "", missing},
		"256 characters":                  {[]string{long + "k"}, "", invalid},
		"256 characters, quoted":          {[]string{`"` + long + `k"`}, "", invalid},
		"empty":                           {[]string{""}, "", invalid},
		"only space":                      {[]string{"   "}, "", invalid},
		"empty, quoted":                   {[]string{`""`}, "", invalid},
		"only space, quoted":              {[]string{`"  "`}, "", invalid},
		"repeated":                        {[]string{"a", "b"}, "", invalid},
		"repeated, the same":              {[]string{"a", "a"}, "", invalid},
		"repeated, empty":                 {[]string{"a", ""}, "", invalid},
		"repeated, joined on the way":     {[]string{"a, b"}, "", invalid},
		"repeated, quoted and joined":     {[]string{`"a", "b"`}, "", invalid},
		"no closing quote":                {[]string{`"a`}, "", invalid},
		"an escaped closing quote":        {[]string{`"a\"`}, "", invalid},
		"an escape of nothing":            {[]string{`"a\b"`}, "", invalid},
		"a backslash at the end":          {[]string{`"a\`}, "", invalid},
		"text behind the quotes":          {[]string{`"a"b`}, "", invalid},
		"a malformed parameter":           {[]string{`"a";=1`}, "", invalid},
		"not ASCII, quoted":               {[]string{`"注"`}, "", invalid},
		"not UTF-8":                       {[]string{"a\xff"}, "", invalid},
		"a tab within":                    {[]string{"a\tb"}, "", invalid},
		"a control character":             {[]string{"a\u0085b"}, "", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			var got saga.Key
			h := sagahttp.Handler(fake[order, receipt](func(_ context.Context, key saga.Key, _ order) (receipt, error) {
				got = key
				return receipt{}, nil
			}), usual)
			answer := serve(t, h).post(t, "", theOrder, header("Idempotency-Key", tc.fields...))
			if tc.slug != "" {
				assert.Equal(t, http.StatusBadRequest, answer.status)
				assert.Equal(t, tc.slug, answer.slug(t))
				assert.NotEmpty(t, answer.problem(t).Detail)
				assert.Zero(t, got, "nothing ran")
				return
			}
			assert.Equal(t, http.StatusCreated, answer.status, answer.body)
			assert.Equal(t, saga.Key{Tenant: "tenant-a", ID: tc.key}, got)
		})
	}
}

func TestAMissingKeyCanBeMadeUpFor(t *testing.T) {
	_, err := sagahttp.IdempotencyKey(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.ErrorIs(t, err, sagahttp.ErrNoKey)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "")
	_, err = sagahttp.IdempotencyKey(r)
	require.Error(t, err)
	assert.NotErrorIs(t, err, sagahttp.ErrNoKey, "an empty key is a mistake, not a wish")
}

func TestABusinessKeyNeedsNoField(t *testing.T) {
	shop := &shop{}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), func(r *http.Request) (saga.Key, order, error) {
		in, err := sagahttp.JSON[order](r)
		return saga.Key{Tenant: "tenant-a", ID: in.No}, in, err
	}))
	none := header("Idempotency-Key")
	assert.False(t, s.post(t, "", theOrder, none).replayed())
	assert.True(t, s.post(t, "", theOrder, none).replayed())
	got := s.post(t, "", `{"no":"","amount":1}`, none)
	assert.Equal(t, http.StatusBadRequest, got.status, "no business key at all")
	assert.Equal(t, "key-invalid", got.slug(t))
	got = s.post(t, "", fmt.Sprintf(`{"no":%q,"amount":1}`, strings.Repeat("n", 1100)), none)
	assert.Equal(t, "key-invalid", got.slug(t), "longer than a run's key may be")
}

// input has a field of every shape.
type input struct {
	No     string            `json:"no"`
	Amount int64             `json:"amount"`
	Any    any               `json:"any"`
	Inner  struct{ N int8 }  `json:"inner"`
	Map    map[string]string `json:"map"`
}

func TestJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		edits  []edit
		opts   []sagahttp.Option
		status int // 0: accepted
		slug   string
		detail string
	}{
		"accepted":                     {body: `{"no":"1","amount":1.20e3,"any":9007199254740993}`},
		"a charset":                    {body: `{}`, edits: []edit{header("Content-Type", "application/json; charset=UTF-8")}},
		"a type that is JSON":          {body: `{}`, edits: []edit{header("Content-Type", "application/merge-patch+json")}},
		"no type":                      {body: `{}`, edits: []edit{header("Content-Type")}},
		"space around":                 {body: " \n{}\t"},
		"identity":                     {body: `{}`, edits: []edit{header("Content-Encoding", "identity")}},
		"empty":                        {status: 400, slug: "body-invalid", detail: "There is no content."},
		"only space":                   {body: " \n", status: 400, slug: "body-invalid", detail: "There is no content."},
		"not JSON":                     {body: `{"no":s3cret}`, status: 400, slug: "body-invalid"},
		"cut off":                      {body: `{"no":"s3cret`, status: 400, slug: "body-invalid"},
		"two values":                   {body: `{} {}`, status: 400, slug: "body-invalid"},
		"a duplicate name":             {body: `{"no":"1","no":"s3cret"}`, status: 400, slug: "body-invalid"},
		"invalid UTF-8":                {body: "{\"no\":\"\xff\"}", status: 400, slug: "body-invalid"},
		"a wrong type":                 {body: `{"no":"1","amount":"s3cret"}`, status: 400, slug: "body-invalid", detail: `"amount" can't take this JSON string.`},
		"a number that does not fit":   {body: `{"inner":{"N":31337}}`, status: 400, slug: "body-invalid", detail: `"inner.N" can't take this JSON number.`},
		"a fraction for an integer":    {body: `{"amount":1.5}`, status: 400, slug: "body-invalid", detail: `"amount" can't take this JSON number.`},
		"an array":                     {body: `["s3cret"]`, status: 400, slug: "body-invalid", detail: "It must not be a JSON array."},
		"an unknown member":            {body: `{"sum":31337}`, status: 400, slug: "body-invalid", detail: `There is no member called "sum".`},
		"an unknown member, permitted": {body: `{"sum":31337}`, opts: []sagahttp.Option{sagahttp.WithUnknownFields()}},
		"a form":                       {body: "no=1", edits: []edit{header("Content-Type", "application/x-www-form-urlencoded")}, status: 415, slug: "media-type"},
		"text":                         {body: `{}`, edits: []edit{header("Content-Type", "text/plain")}, status: 415, slug: "media-type"},
		"another charset":              {body: `{}`, edits: []edit{header("Content-Type", "application/json; charset=utf-16")}, status: 415, slug: "media-type"},
		"a malformed type":             {body: `{}`, edits: []edit{header("Content-Type", "application/json; charset")}, status: 415, slug: "media-type"},
		"compressed":                   {body: `{}`, edits: []edit{header("Content-Encoding", "gzip")}, status: 415, slug: "media-type"},
		"as long as may be":            {body: `{"no":"45678901"}`, opts: []sagahttp.Option{sagahttp.WithBodyLimit(17)}},
		"a byte too long":              {body: `{"no":"456789012"}`, opts: []sagahttp.Option{sagahttp.WithBodyLimit(17)}, status: 413, slug: "too-large", detail: "At most 17 bytes are accepted."},
		"longer than the default":      {body: `{"no":"` + strings.Repeat("x", 1<<20) + `"}`, status: 413, slug: "too-large"},
		"longer, length not announced": {body: `{"no":"` + strings.Repeat("x", 1<<20) + `"}`, edits: []edit{chunked}, status: 413, slug: "too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			ran, out := false, &logged{}
			log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), out, zap.DebugLevel))
			h := sagahttp.Handler(fake[input, receipt](func(_ context.Context, _ saga.Key, in input) (receipt, error) {
				ran = true
				if n, ok := in.Any.(json.Number); ok {
					assert.Equal(t, json.Number("9007199254740993"), n)
					assert.EqualValues(t, 1200, in.Amount)
				}
				return receipt{}, nil
			}), sagahttp.Request[input](nil), append(tc.opts, sagahttp.WithLogger(log))...)
			got := serve(t, h).post(t, theKey, tc.body, tc.edits...)
			if tc.status == 0 {
				assert.Equal(t, http.StatusCreated, got.status, got.body)
				assert.True(t, ran)
				return
			}
			assert.Equal(t, tc.status, got.status)
			assert.Equal(t, tc.slug, got.slug(t))
			assert.False(t, ran)
			if tc.detail != "" {
				assert.Equal(t, tc.detail, got.problem(t).Detail)
			}
			for _, secret := range []string{"s3cret", "31337", "int64", "input"} {
				assert.NotContains(t, got.body, secret)
				assert.NotContains(t, out.text(), secret, "the log gets no payload either")
			}
			assert.Contains(t, out.text(), got.problem(t).Instance)
		})
	}
}

// chunked hides the length of the content.
func chunked(r *http.Request) {
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(r.Body)), -1
}

func TestAClientThatBreaksOffItsContentStartsNothing(t *testing.T) {
	ran := make(chan struct{}, 1)
	h, done := served(sagahttp.Handler(fake[order, receipt](func(context.Context, saga.Key, order) (receipt, error) {
		ran <- struct{}{}
		return receipt{}, nil
	}), usual))
	s := serve(t, h)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTo=\r\nIdempotency-Key: 1\r\nContent-Length: 100\r\n\r\n{\"no\":")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	<-done
	assert.Empty(t, ran)
}

func TestJSONOutsideOfAHandler(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(theOrder))
	in, err := sagahttp.JSON[order](r)
	require.NoError(t, err)
	assert.Equal(t, order{"order-001", 1200}, in)
	r.Body = io.NopCloser(strings.NewReader(`"` + strings.Repeat("x", 1<<20) + `"`))
	_, err = sagahttp.JSON[string](r)
	var tooLarge *http.MaxBytesError
	require.ErrorAs(t, err, &tooLarge)
	r.Body = nil
	_, err = sagahttp.JSON[string](r)
	require.Error(t, err)
}

// cents has a rule of its own.
type cents int

func (*cents) UnmarshalJSON([]byte) error { return errors.New("s3cret rule") }

func TestAnInputsOwnErrorIsNotShown(t *testing.T) {
	h := sagahttp.Handler(fake[cents, receipt](func(context.Context, saga.Key, cents) (receipt, error) { return receipt{}, nil }), sagahttp.Request[cents](nil))
	got := serve(t, h).post(t, theKey, "1")
	assert.Equal(t, "body-invalid", got.slug(t))
	assert.NotContains(t, got.body, "s3cret")
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		want   sagahttp.Problem // Title and Detail
		header http.Header
	}{
		"anything":                  {errors.New("s3cret"), 400, sagahttp.Problem{Title: "The request was refused"}, nil},
		"a status":                  {sagahttp.Status(http.StatusUnauthorized, errors.New("s3cret")), 401, sagahttp.Problem{Title: "Unauthorized"}, nil},
		"a status without a cause":  {sagahttp.Status(http.StatusForbidden, nil), 403, sagahttp.Problem{Title: "Forbidden"}, nil},
		"a wrapped status":          {fmt.Errorf("s3cret: %w", sagahttp.Status(http.StatusForbidden, nil)), 403, sagahttp.Problem{Title: "Forbidden"}, nil},
		"a status without a name":   {sagahttp.Status(499, nil), 499, sagahttp.Problem{Title: "The request was refused"}, nil},
		"no status of an error":     {sagahttp.Status(http.StatusOK, errors.New("s3cret")), 500, sagahttp.Problem{Title: "Internal error"}, nil},
		"no status at all":          {sagahttp.Status(0, nil), 500, sagahttp.Problem{Title: "Internal error"}, nil},
		"nothing may be learnt of":  {&sagahttp.Refusal{Status: 99, Detail: "s3cret"}, 500, sagahttp.Problem{Title: "Internal error"}, nil},
		"content that is too large": {&http.MaxBytesError{Limit: 1}, 413, sagahttp.Problem{Title: "The content is too large"}, nil},
		"no such thing":             {fmt.Errorf("s3cret: %w", saga.ErrNotFound), 404, sagahttp.Problem{Title: "There is no such operation"}, nil},
		"in all": {&sagahttp.Refusal{Status: 429, Title: "Slow down", Detail: "At most ten a minute.", Err: errors.New("s3cret"),
			Header: http.Header{"Retry-After": {"6"}, "content-type": {"text/html"}}}, 429,
			sagahttp.Problem{Title: "Slow down", Detail: "At most ten a minute."}, http.Header{"Retry-After": {"6"}}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			accept := false
			shop := &shop{}
			s := serve(t, sagahttp.Handler(shop.on(t, store), func(r *http.Request) (saga.Key, order, error) {
				if accept {
					return usual(r)
				}
				return saga.Key{Tenant: "tenant-a", ID: theKey}, order{}, tc.err
			}))
			got := s.post(t, theKey, theOrder)
			assert.Equal(t, tc.status, got.status)
			p := got.problem(t)
			assert.Equal(t, tc.want.Title, p.Title)
			assert.Equal(t, tc.want.Detail, p.Detail)
			assert.NotContains(t, got.body, "s3cret")
			for name, values := range tc.header {
				assert.Equal(t, values, got.header.Values(name))
			}
			assert.NotEqual(t, p.Instance, s.post(t, theKey, theOrder).problem(t).Instance, "each refusal is one of its own")

			page, err := store.List(t.Context(), state.Query{})
			require.NoError(t, err)
			assert.Empty(t, page.Records, "nothing is stored")
			accept = true
			got = s.post(t, theKey, theOrder)
			assert.Equal(t, http.StatusCreated, got.status, "the same key may be used again")
			assert.False(t, got.replayed())
		})
	}
}

func TestATenantsErrorIsTheAnswer(t *testing.T) {
	s := serve(t, sagahttp.Handler(answering201, usual))
	got := s.post(t, theKey, theOrder, func(r *http.Request) { r.Header.Del("Authorization") })
	assert.Equal(t, http.StatusUnauthorized, got.status)
	assert.NotContains(t, got.body, "session table")
}

func TestARefusalSaysWhy(t *testing.T) {
	cause := errors.New("the token is too old")
	err := sagahttp.Status(http.StatusUnauthorized, cause)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "sagahttp: refused with 401: Unauthorized: the token is too old")
	require.EqualError(t, &sagahttp.Refusal{Status: 422, Detail: "The amount must be positive."}, "sagahttp: refused with 422: Unprocessable Entity: The amount must be positive.")
}

func TestSafeMethodsRunNothing(t *testing.T) {
	shop := &shop{}
	s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual))
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "PROPFIND"} {
		got := s.post(t, theKey, theOrder, method(m), chunked)
		assert.Equal(t, http.StatusMethodNotAllowed, got.status, m)
		assert.Equal(t, []string{"POST", "PUT", "PATCH", "DELETE"}, got.header.Values("Allow"), m)
		if m == http.MethodHead {
			assert.Empty(t, got.body)
		} else {
			assert.Equal(t, "method", got.slug(t), m)
		}
	}
	assert.Zero(t, shop.total())
	for _, m := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
		assert.Equal(t, http.StatusCreated, s.post(t, "by "+m, theOrder, method(m)).status, m)
	}
}

func TestTheRequestItselfIsNotChanged(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(theOrder))
	r.Header.Set("Idempotency-Key", theKey)
	body := r.Body
	w := httptest.NewRecorder()
	sagahttp.Handler(answering201, sagahttp.Request[order](nil)).ServeHTTP(w, r)
	assert.Equal(t, http.StatusCreated, w.Code)
	assert.Equal(t, body, r.Body)
	w = httptest.NewRecorder()
	r.Body = nil
	sagahttp.Handler(answering201, func(*http.Request) (saga.Key, order, error) { return saga.Key{ID: "1"}, order{}, nil }).ServeHTTP(w, r)
	assert.Equal(t, http.StatusCreated, w.Code, "a request made by hand may have no body")
}

func TestMistakesInTheOptions(t *testing.T) {
	for name, opts := range map[string][]sagahttp.Option{
		"WithSuccess":        {sagahttp.WithSuccess(302)},
		"WithFailure":        {sagahttp.WithFailure("x", sagahttp.Failure{Status: 200})},
		"WithFailure(\\\"":   {sagahttp.WithFailure("", sagahttp.Failure{})},
		"WithFailure(\\\"y":  {sagahttp.WithFailures(map[string]int{"y": 600})},
		"WithTypes":          {sagahttp.WithTypes("")},
		"WithBodyLimit":      {sagahttp.WithBodyLimit(0)},
		"WithMaxWait":        {sagahttp.WithMaxWait(-1)},
		"WithTimeout":        {sagahttp.WithTimeout(0)},
		"WithRetryAfter":     {sagahttp.WithRetryAfter(0)},
		"WithDetached needs": {sagahttp.WithDetached()},
		"WithLogger(nil)":    {sagahttp.WithLogger(nil)},
	} {
		out := &logged{}
		log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), out, zap.ErrorLevel))
		h := sagahttp.Handler(answering201, usual, append([]sagahttp.Option{nil, sagahttp.WithLogger(log)}, opts...)...)
		assert.Contains(t, out.text(), name, "told at once")
		got := serve(t, h).post(t, theKey, theOrder)
		assert.Equal(t, http.StatusInternalServerError, got.status, name)
		assert.Equal(t, "internal", got.slug(t), name)
		assert.Contains(t, got.body, "WithLogger", "a hint for whoever has given no logger")
	}
	for name, h := range map[string]http.Handler{
		"no runner":           sagahttp.Handler[order, receipt](nil, usual),
		"no request function": sagahttp.Handler[order, receipt](answering201, nil),
	} {
		assert.Equal(t, http.StatusInternalServerError, serve(t, h).post(t, theKey, theOrder).status, name)
	}
}

func TestLinksAreSafeInAField(t *testing.T) {
	for given, want := range map[string]string{
		"/orders/1":       `</orders/1>; rel="status"`,
		"/a>; rel=\"next": `</a%3E;%20rel=%22next>; rel="status"`,
		"":                "",
		"/a\r\nX: y":      "",
	} {
		link := sagahttp.WithStatusLink(func(saga.Key) string { return given })
		assert.Equal(t, want, serve(t, sagahttp.Handler(answering201, usual, link)).post(t, theKey, theOrder).header.Get("Link"))
		assert.Equal(t, want, serve(t, answering(saga.ErrInProgress, link)).post(t, theKey, theOrder).header.Get("Link"))
	}
}

func TestDoingWithoutTheRest(t *testing.T) {
	s := serve(t, sagahttp.Handler(answering201, usual, sagahttp.WithMaxWait(time.Hour)))
	for field, want := range map[string]string{
		"wait=5":                            "wait=5",
		"WAIT = 5":                          "wait=5",
		`wait="5"`:                          "wait=5",
		"respond-async, wait=5;x=y, wait=9": "wait=5",
		`foo="a,wait=7", wait=5`:            "wait=5",
		`foo="\",wait=7", wait=5`:           "wait=5",
		"wait=99999999":                     "wait=3600",
		"wait":                              "",
		"wait=0":                            "",
		"wait=-1":                           "",
		"wait=1.5":                          "",
		"wait=99999999999999999999999999":   "",
		"awaits=5":                          "",
		`foo="`:                             "",
		"":                                  "",
	} {
		got := s.post(t, theKey, theOrder, header("Prefer", field))
		assert.Equal(t, http.StatusCreated, got.status, field)
		assert.Equal(t, want, got.header.Get("Preference-Applied"), field)
	}
	assert.Equal(t, "wait=5", s.post(t, theKey, theOrder, header("Prefer", "respond-async", "wait=5")).header.Get("Preference-Applied"))
}

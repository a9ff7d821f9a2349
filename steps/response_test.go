package steps

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func answer(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	u := &url.URL{Scheme: "https", User: url.UserPassword("me", "passw0rd"), Host: "provider.test:8443", Path: "/customers/p4th", RawQuery: "key=qu3ry"}
	return &http.Response{
		StatusCode: code,
		Status:     fmt.Sprintf("%d reason-phr4se", code),
		Header:     h,
		Body:       &untouched{},
		Request:    &http.Request{Method: http.MethodPost, URL: u},
	}
}

// untouched is a body that notes being read or closed.
type untouched struct{ touched bool }

func (u *untouched) Read([]byte) (int, error) { u.touched = true; return 0, io.EOF }
func (u *untouched) Close() error             { u.touched = true; return nil }

// Every status that HTTP can express, and some that it can't, against the rule written a second time.
func TestCheckResponseEveryStatus(t *testing.T) {
	transient4xx := map[int]bool{408: true, 409: true, 425: true, 429: true}
	for code := -1; code <= 1000; code++ {
		resp := answer(code, "Retry-After", "7")
		err := CheckResponse(resp)
		assert.False(t, resp.Body.(*untouched).touched, "%d: the body is the caller's", code)
		if code/100 == 2 {
			require.NoError(t, err, code)
			continue
		}
		require.Error(t, err, code)
		assert.Equal(t, fmt.Sprintf("http_%d", code), Code(err))
		assert.Equal(t, code/100 == 4 && !transient4xx[code], IsPermanent(err), code)
		d, ok := Delay(err)
		assert.Equal(t, code/100 == 5 || transient4xx[code], ok, code)
		if ok {
			assert.Equal(t, 7*time.Second, d, code)
		}
	}
}

func TestCheckResponseRetryAfter(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		header   []string
		ok       bool
		low, top time.Duration
	}{
		"none":                   {nil, false, 0, 0},
		"seconds":                {[]string{"Retry-After", "90"}, true, 90 * time.Second, 90 * time.Second},
		"a date":                 {[]string{"Retry-After", date(time.Hour)}, true, 58 * time.Minute, time.Hour},
		"a date on a slow clock": {[]string{"Date", date(-3 * time.Hour), "Retry-After", date(-2 * time.Hour)}, true, time.Hour - time.Second, time.Hour + time.Second},
		"a date gone by":         {[]string{"Retry-After", date(-time.Hour)}, false, 0, 0},
		"zero":                   {[]string{"Retry-After", "0"}, false, 0, 0},
		"negative":               {[]string{"Retry-After", "-5"}, false, 0, 0},
		"overflow":               {[]string{"Retry-After", "99999999999999999999"}, true, 24 * time.Hour, 24 * time.Hour},
		"garbage":                {[]string{"Retry-After", "soon"}, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckResponse(answer(http.StatusServiceUnavailable, tc.header...))
			require.Error(t, err)
			assert.False(t, IsPermanent(err))
			d, ok := Delay(err)
			assert.Equal(t, tc.ok, ok)
			assert.GreaterOrEqual(t, d, tc.low)
			assert.LessOrEqual(t, d, tc.top)
		})
	}
}

func TestCheckResponseMessage(t *testing.T) {
	err := CheckResponse(answer(http.StatusUnprocessableEntity))
	require.EqualError(t, err, "POST provider.test:8443: the answer was 422 Unprocessable Entity")
	for _, secret := range []string{"passw0rd", "p4th", "qu3ry", "phr4se"} {
		assert.NotContains(t, err.Error(), secret)
	}

	resp := answer(http.StatusTeapot + 81) // 499 has no text of its own
	resp.Body = io.NopCloser(strings.NewReader("a card number"))
	resp.Request = nil
	require.EqualError(t, CheckResponse(resp), "the answer was 499")

	resp.Request = &http.Request{URL: &url.URL{Host: "provider.test"}} // the empty method is GET
	require.EqualError(t, CheckResponse(resp), "GET provider.test: the answer was 499")
}

func TestCheckResponseWithoutOne(t *testing.T) {
	err := CheckResponse(nil)
	require.Error(t, err)
	assert.False(t, IsPermanent(err))
}

func TestCheckResponseKeepsACodeGivenAround(t *testing.T) {
	err := WithCode("card_declined", CheckResponse(answer(http.StatusPaymentRequired)))
	assert.Equal(t, "card_declined", Code(err))
	assert.True(t, IsPermanent(err))
}

package sagahttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
)

// seen is a request as the server had it, at a time of the test's clock.
type seen struct {
	keys   []string
	body   string
	method string
	at     time.Duration
}

// script is a server that answers each request as the next of its lines says, and the last one for ever.
type script struct {
	mu    sync.Mutex
	clk   *clock.Fake
	lines []http.HandlerFunc
	got   []seen
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n := min(len(s.got), len(s.lines)-1)
	s.got = append(s.got, seen{r.Header.Values("Idempotency-Key"), string(body), r.Method, s.clk.Mono()})
	s.mu.Unlock()
	s.lines[n](w, r)
}

func (s *script) seen() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.got...)
}

// says answers with a status, and with fields given as name, value, ...
func says(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "answer "+strconv.Itoa(status))
	}
}

// hangsUp ends the connection without an answer.
func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// retrying is a client with a RetryTransport on a clock that its waits move, and the server that it talks to.
func retrying(t *testing.T, tr *sagahttp.RetryTransport, lines ...http.HandlerFunc) (*http.Client, *script, string) {
	t.Helper()
	clk := new(clock.Fake)
	clk.AutoAdvance()
	s := &script{clk: clk, lines: lines}
	server := serve(t, s)
	if tr.Base == nil {
		tr.Base = server.Client().Transport
	}
	return &http.Client{Transport: tr.On(clk)}, s, server.URL
}

func request(t *testing.T, ctx context.Context, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(theOrder))
	require.NoError(t, err)
	return req
}

// ask sends a request and reads the status and the content of its answer.
func ask(t *testing.T, client *http.Client, req *http.Request) (int, string) {
	t.Helper()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestEveryStatusIsRepeatedOrNot(t *testing.T) {
	repeated := map[int]bool{408: true, 409: true, 425: true, 429: true, 502: true, 503: true, 504: true}
	for status := 200; status < 600; status++ {
		if http.StatusText(status) == "" || status >= 300 && status < 400 {
			continue
		}
		client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(status), says(http.StatusCreated))
		req := request(t, t.Context(), url)
		got, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		if !repeated[status] {
			assert.Equal(t, status, got.StatusCode)
			assert.Len(t, server.seen(), 1, status)
			continue
		}
		assert.Equal(t, http.StatusCreated, got.StatusCode)
		assert.Len(t, server.seen(), 2, status)
		assert.Empty(t, req.Header, "the request is not changed")
	}
}

const uuid4 = `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`

func TestOneKeyAndOneBodyForAllAttempts(t *testing.T) {
	client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(503), hangsUp, says(409), hangsUp, says(201), says(503), says(201))
	status, body := ask(t, client, request(t, t.Context(), url))
	assert.Equal(t, http.StatusCreated, status)
	assert.Equal(t, "answer 201", body)
	got := server.seen()
	require.Len(t, got, 5)
	require.Len(t, got[0].keys, 1)
	assert.Regexp(t, uuid4, got[0].keys[0])
	for _, r := range got {
		assert.Equal(t, got[0].keys, r.keys)
		assert.Equal(t, theOrder, r.body)
	}

	status, _ = ask(t, client, request(t, t.Context(), url))
	assert.Equal(t, http.StatusCreated, status)
	other := server.seen()[5:]
	require.Len(t, other, 2)
	assert.NotEqual(t, got[0].keys, other[0].keys, "another request, another key")
	assert.Equal(t, other[0].keys, other[1].keys)
}

func TestWhereTheKeyComesFrom(t *testing.T) {
	business := func(ctx context.Context) context.Context { return sagahttp.KeyContext(ctx, "order-001") }
	for name, tc := range map[string]struct {
		transport sagahttp.RetryTransport
		ctx       func(context.Context) context.Context
		edit      edit
		want      []string
		attempts  int
	}{
		"the context":               {ctx: business, want: []string{"order-001"}, attempts: 2},
		"the context, quoted":       {transport: sagahttp.RetryTransport{Quoted: true}, ctx: business, want: []string{`"order-001"`}, attempts: 2},
		"quoted, with escapes":      {transport: sagahttp.RetryTransport{Quoted: true}, ctx: func(ctx context.Context) context.Context { return sagahttp.KeyContext(ctx, `a"\,b`) }, want: []string{`"a\"\\,b"`}, attempts: 2},
		"the request's own":         {ctx: business, edit: header("Idempotency-Key", `"mine"`), want: []string{`"mine"`}, attempts: 2},
		"its own, in lower case":    {edit: func(r *http.Request) { r.Header["idempotency-key"] = []string{"mine"} }, want: []string{"mine"}, attempts: 2},
		"an empty field is none":    {ctx: business, edit: header("Idempotency-Key", ""), want: []string{"order-001"}, attempts: 2},
		"empty, in lower case":      {ctx: business, edit: func(r *http.Request) { r.Header["idempotency-key"] = []string{""} }, want: []string{"order-001"}, attempts: 2},
		"no header at all":          {ctx: business, edit: func(r *http.Request) { r.Header = nil }, want: []string{"order-001"}, attempts: 2},
		"a nil value: none, once":   {ctx: business, edit: header("Idempotency-Key"), want: nil, attempts: 1},
		"a safe method needs none":  {ctx: business, edit: method(http.MethodGet), want: nil, attempts: 2},
		"PUT has one":               {ctx: business, edit: method(http.MethodPut), want: []string{"order-001"}, attempts: 2},
		"DELETE has one":            {ctx: business, edit: method(http.MethodDelete), want: []string{"order-001"}, attempts: 2},
		"several bytes a character": {ctx: func(ctx context.Context) context.Context { return sagahttp.KeyContext(ctx, "注文-1") }, want: []string{"注文-1"}, attempts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.ctx != nil {
				ctx = tc.ctx(ctx)
			}
			client, server, url := retrying(t, &tc.transport, says(503), says(201))
			req := request(t, ctx, url)
			if tc.edit != nil {
				tc.edit(req)
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			got := server.seen()
			require.Len(t, got, tc.attempts)
			for _, r := range got {
				assert.Equal(t, tc.want, r.keys)
			}
		})
	}
}

func TestAKeyThatCanNotBeSent(t *testing.T) {
	for name, tc := range map[string]struct {
		key    string
		quoted bool
	}{
		"empty":                     {"", false},
		"space":                     {" ", true},
		"256 characters":            {strings.Repeat("k", 256), false},
		"a comma":                   {"a,b", false},
		"a quote at its start":      {`"a`, false},
		"space at its end":          {"a ", false},
		"a line break":              {"a\nX: y", false},
		"a line break, quoted":      {"a\nX: y", true},
		"not ASCII, quoted":         {"注", true},
		"not UTF-8":                 {"\xff", false},
		"a control character":       {"a\u0085", false},
		"a control character, last": {"a\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, url := retrying(t, &sagahttp.RetryTransport{Quoted: tc.quoted}, says(201))
			body := &closing{Reader: strings.NewReader(theOrder)}
			req := request(t, sagahttp.KeyContext(t.Context(), tc.key), url+"/?token=s3cret")
			req.Body = body
			_, err := client.Transport.RoundTrip(req) //nolint:bodyclose // there is no response
			require.ErrorContains(t, err, "the idempotency key can't be sent")
			assert.NotContains(t, err.Error(), "s3cret")
			assert.Empty(t, server.seen())
			assert.True(t, body.closed)
		})
	}
}

// closing tells whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestRetryAfterIsObeyed(t *testing.T) {
	date := "Sun, 01 Mar 2026 12:00:00 GMT"
	for name, tc := range map[string]struct {
		fields   []string
		min, max time.Duration
		attempts int
	}{
		"seconds":                  {[]string{"Retry-After", "7"}, 7 * time.Second, 7 * time.Second, 2},
		"a date":                   {[]string{"Retry-After", "Sun, 01 Mar 2026 12:00:09 GMT", "Date", date}, 9 * time.Second, 9 * time.Second, 2},
		"none":                     {nil, 100 * time.Millisecond, 200 * time.Millisecond, 2},
		"at once is not too soon":  {[]string{"Retry-After", "0"}, 100 * time.Millisecond, 200 * time.Millisecond, 2},
		"what can't be read":       {[]string{"Retry-After", "soon"}, 100 * time.Millisecond, 200 * time.Millisecond, 2},
		"the longest":              {[]string{"Retry-After", "60"}, time.Minute, time.Minute, 2},
		"longer than one can wait": {[]string{"Retry-After", "61"}, 0, 0, 1},
		"a final answer":           {[]string{"Retry-After", "1", "Idempotency-Replayed", "true"}, 0, 0, 1},
	} {
		for _, status := range []int{409, 425, 429, 503} {
			t.Run(name+" "+strconv.Itoa(status), func(t *testing.T) {
				client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(status, tc.fields...), says(201))
				got, body := ask(t, client, request(t, t.Context(), url))
				require.Len(t, server.seen(), tc.attempts)
				if tc.attempts == 1 {
					assert.Equal(t, status, got)
					assert.Equal(t, "answer "+strconv.Itoa(status), body, "the answer is the caller's, whole")
					return
				}
				assert.GreaterOrEqual(t, server.seen()[1].at, tc.min)
				assert.LessOrEqual(t, server.seen()[1].at, tc.max)
			})
		}
	}
}

func TestWaitsGrowUpToTheLongest(t *testing.T) {
	client, server, url := retrying(t, &sagahttp.RetryTransport{FirstWait: time.Second, LongestWait: 5 * time.Second, Attempts: 6}, says(503))
	status, body := ask(t, client, request(t, t.Context(), url))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "answer 503", body, "the last answer")
	got := server.seen()
	require.Len(t, got, 6)
	for i, seconds := range []int{1, 2, 4, 5, 5} {
		full := time.Duration(seconds) * time.Second
		wait := got[i+1].at - got[i].at
		assert.GreaterOrEqual(t, wait, full/2, i)
		assert.LessOrEqual(t, wait, full, i)
	}
}

func TestAttemptsEnd(t *testing.T) {
	for attempts, want := range map[int]int{0: sagahttp.DefaultAttempts, 1: 1, 3: 3, -1: 1} {
		client, server, url := retrying(t, &sagahttp.RetryTransport{Attempts: attempts}, hangsUp)
		_, err := client.Do(request(t, t.Context(), url)) //nolint:bodyclose // there is no response
		require.ErrorIs(t, err, io.EOF, "the last error as it is")
		assert.Len(t, server.seen(), want)
	}
}

func TestABodyThatCanNotBeReadAgainIsSentOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		edit edit
		want int
	}{
		"no GetBody":        {func(r *http.Request) { r.GetBody = nil }, 1},
		"GetBody fails":     {func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") } }, 1},
		"no body":           {func(r *http.Request) { r.Body, r.GetBody, r.ContentLength = nil, nil, 0 }, 2},
		"explicitly no one": {func(r *http.Request) { r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, 0 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(503), says(201))
			req := request(t, t.Context(), url)
			tc.edit(req)
			_, body := ask(t, client, req)
			assert.Len(t, server.seen(), tc.want)
			if tc.want == 1 {
				assert.Equal(t, "answer 503", body)
			}
		})
	}
}

func TestNothingIsRepeatedOnceTheServerMayHaveForgotten(t *testing.T) {
	const keep = 100 * time.Second
	steadily := func() (*http.Client, *script, string) {
		return retrying(t, &sagahttp.RetryTransport{Retention: keep, Attempts: 1000, LongestWait: 7 * time.Second}, says(503, "Retry-After", "7"))
	}
	client, server, url := steadily()
	status, _ := ask(t, client, request(t, t.Context(), url))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	got := server.seen()
	assert.Equal(t, 84*time.Second, got[len(got)-1].at, "the last before the margin of a tenth")

	// A key that is older than the request.
	client, server, url = steadily()
	ctx := sagahttp.KeyContextSince(t.Context(), theKey, time.Now().Add(-60*time.Second))
	status, _ = ask(t, client, request(t, ctx, url))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	got = server.seen()
	assert.Less(t, got[len(got)-1].at, 31*time.Second)
	assert.Greater(t, len(got), 2)

	// A key that is too old is not sent at all.
	client, server, url = steadily()
	ctx = sagahttp.KeyContextSince(t.Context(), theKey, time.Now().Add(-91*time.Second))
	_, err := client.Do(request(t, ctx, url)) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, sagahttp.ErrKeyExpired)
	assert.Empty(t, server.seen())

	// A key of the future is a new one.
	client, server, url = retrying(t, &sagahttp.RetryTransport{Retention: keep}, says(201))
	ctx = sagahttp.KeyContextSince(t.Context(), theKey, time.Now().Add(time.Hour))
	status, _ = ask(t, client, request(t, ctx, url))
	assert.Equal(t, http.StatusCreated, status)
	assert.Len(t, server.seen(), 1)

	// A server that never forgets.
	client, server, url = retrying(t, &sagahttp.RetryTransport{Retention: -1, Attempts: 30}, says(503, "Retry-After", "60"))
	ctx = sagahttp.KeyContextSince(t.Context(), theKey, time.Now().AddDate(-1, 0, 0))
	ask(t, client, request(t, ctx, url))
	assert.Len(t, server.seen(), 30)
}

// A machine that sleeps has its monotonic clock standing still, and the server's retention going on.
func TestTimeThatPassesAsleepCounts(t *testing.T) {
	clk := new(clock.Fake)
	clk.AutoAdvance()
	s := &script{clk: clk, lines: []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		clk.Set(clk.Now().Add(30 * time.Hour))
		says(503)(w, r)
	}}}
	server := serve(t, s)
	client := &http.Client{Transport: (&sagahttp.RetryTransport{Base: server.Client().Transport}).On(clk)}
	status, _ := ask(t, client, request(t, t.Context(), server.URL))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Len(t, s.seen(), 1)
}

func TestAWaitPastTheDeadlineIsNotMade(t *testing.T) {
	client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(503, "Retry-After", "30"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	status, _ := ask(t, client, request(t, ctx, url))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Len(t, server.seen(), 1)
	assert.Less(t, time.Since(began), 10*time.Second)
}

func TestAWaitEndsWithItsRequest(t *testing.T) {
	server := serve(t, says(503, "Retry-After", "50"))
	client := &http.Client{Transport: &sagahttp.RetryTransport{Base: server.Client().Transport}} // on the machine's clock
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	failed := make(chan error)
	req := request(t, ctx, server.URL)
	again := &closing{Reader: strings.NewReader(theOrder)}
	waits := make(chan struct{})
	req.GetBody = func() (io.ReadCloser, error) { // which is asked for when it is clear that there is to be another attempt
		close(waits)
		return again, nil
	}
	go func() {
		_, err := client.Do(req) //nolint:bodyclose // there is no response
		failed <- err
	}()
	<-waits
	cancel(errors.New("enough"))
	require.Error(t, <-failed)
	assert.True(t, again.closed, "a body that was made for an attempt is closed without one")
	client.CloseIdleConnections()
}

func TestACancelledRequestIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, server, url := retrying(t, &sagahttp.RetryTransport{}, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := client.Do(request(t, ctx, url)) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, server.seen(), 1)
}

func TestAServerThatIsNotTrustedIsNotAskedAgain(t *testing.T) {
	tries := 0
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		tries++
		return nil, &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
	})
	client, _, url := retrying(t, &sagahttp.RetryTransport{Base: base}, says(201))
	_, err := client.Do(request(t, t.Context(), url)) //nolint:bodyclose // there is no response
	require.Error(t, err)
	assert.Equal(t, 1, tries)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARedirectKeepsTheKey(t *testing.T) {
	for status, same := range map[int]bool{http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true, http.StatusSeeOther: false} {
		client, server, url := retrying(t, &sagahttp.RetryTransport{}, says(status, "Location", "/there"), says(503), says(200))
		got, _ := ask(t, client, request(t, t.Context(), url))
		assert.Equal(t, http.StatusOK, got)
		all := server.seen()
		require.Len(t, all, 3)
		for _, r := range all[1:] {
			if same {
				assert.Equal(t, all[0].keys, r.keys, status)
				assert.Equal(t, theOrder, r.body, status)
			} else {
				assert.Equal(t, http.MethodGet, r.method)
				assert.Empty(t, r.keys)
			}
		}
	}
}

func TestTheDefaultTransportIsTheBase(t *testing.T) {
	old := http.DefaultTransport
	used := 0
	http.DefaultTransport = roundTrip(func(*http.Request) (*http.Response, error) {
		used++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
	})
	defer func() { http.DefaultTransport = old }()
	client := &http.Client{Transport: &sagahttp.RetryTransport{}}
	status, _ := ask(t, client, request(t, t.Context(), "http://provider.test/"))
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, 1, used)
	client.CloseIdleConnections() // a base that has no such method
}

// Client and server of this package together: a run that is at work, interrupted, and done, is one request to the caller.
func TestTheTwoSidesTogether(t *testing.T) {
	tries := 0
	shop := &shop{charge: func(context.Context, *orderRun) error {
		if tries++; tries < 3 {
			return errors.New("down")
		}
		return nil
	}}
	for _, quoted := range []bool{false, true} {
		tries = 0
		s := serve(t, sagahttp.Handler(shop.on(t, newStore()), usual))
		clk := new(clock.Fake)
		clk.AutoAdvance()
		client := &http.Client{Transport: (&sagahttp.RetryTransport{Base: s.Client().Transport, Quoted: quoted}).On(clk)}
		ctx := sagahttp.KeyContext(t.Context(), "order 1")
		for _, replayed := range []string{"", "true"} {
			req := request(t, ctx, s.URL)
			req.SetBasicAuth("tenant-a", "")
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusCreated, resp.StatusCode)
			assert.Equal(t, replayed, resp.Header.Get("Idempotency-Replayed"))
		}
		assert.Equal(t, 3, tries)
	}
	assert.EqualValues(t, 2400, shop.total())
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var mu sync.Mutex
	peers := map[string]bool{}
	lines := []http.HandlerFunc{says(503), says(429), says(409), says(201)}
	for i, line := range lines {
		lines[i] = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			peers[r.RemoteAddr] = true
			mu.Unlock()
			line(w, r)
		}
	}
	client, _, url := retrying(t, &sagahttp.RetryTransport{}, lines...)
	ask(t, client, request(t, t.Context(), url))
	assert.Len(t, peers, 1)
}

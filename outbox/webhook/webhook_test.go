package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an HTTP server that notes what is posted to it and answers what it is told to.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []*http.Request
	bodies []string
	answer func(w http.ResponseWriter, r *http.Request, body string)
}

func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request, string)) *receiver {
	rc := &receiver{answer: answer}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		rc.mu.Lock()
		rc.got, rc.bodies = append(rc.got, r), append(rc.bodies, string(body))
		rc.mu.Unlock()
		if rc.answer != nil {
			rc.answer(w, r, string(body))
		}
	}))
	t.Cleanup(rc.Close)
	return rc
}

func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func publisher(t *testing.T, url string, opts ...webhook.Option) *webhook.Publisher {
	t.Helper()
	p, err := webhook.New(t.Context(), url, append([]webhook.Option{webhook.WithClient(client(t))}, opts...)...)
	require.NoError(t, err)
	return p
}

func TestNewAsksForEveryURL(t *testing.T) {
	there := receive(t, nil)
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	for what, target := range map[string]string{
		"no target": "", "absolute": "/hook", "http or https": "ftp://example.com/x", "404": gone.URL + "/hook?token=secret", "connect": "http://127.0.0.1:1/",
	} {
		_, err := webhook.New(t.Context(), target, webhook.WithClient(client(t)))
		require.ErrorContains(t, err, what)
		assert.NotContains(t, err.Error(), "secret")
	}
	_, err := webhook.New(t.Context(), there.URL, webhook.WithClient(client(t)), webhook.WithURL("t", gone.URL))
	require.ErrorContains(t, err, gone.URL)
	_, err = webhook.New(t.Context(), gone.URL, webhook.WithClient(client(t)), webhook.WithProbe(""))
	require.NoError(t, err, "the check can be left out")
	for _, o := range []webhook.Option{webhook.WithClient(nil), webhook.WithEncoder(nil), webhook.WithRequest(nil), webhook.WithConcurrency(0)} {
		_, err := webhook.New(t.Context(), there.URL, o)
		require.Error(t, err)
	}
}

func TestPostCarriesIDBodyAndAttributes(t *testing.T) {
	rc := receive(t, nil)
	p := publisher(t, rc.URL+"/hook", webhook.WithRequest(func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer token")
		return nil
	}))
	big := strings.Repeat("ü", 150_000)
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "a", 0, outbox.Message{
			Type: "order.created", Key: "o-1", Body: map[string]string{"k": "grüße"}, Attributes: map[string]string{"X-City": `"東京" 100%`},
		}),
		brokertest.Message(t, "a", 1, outbox.Message{Key: "o-1", Body: []byte(big), ContentType: "text/plain"}),
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a/0": "sent", "a/1": "sent"}, brokertest.Told(res))
	r := rc.got[0]
	assert.Equal(t, "/hook", r.URL.Path)
	assert.Equal(t, "#shop#a/notify/0", r.Header.Get("Idempotency-Key"))
	assert.Equal(t, "#shop#a/notify/0", r.Header.Get("Message-Id"))
	assert.Equal(t, "orders", r.Header.Get("Message-Topic"))
	assert.Equal(t, "order.created", r.Header.Get("Message-Type"))
	assert.Equal(t, "o-1", r.Header.Get("Message-Key"))
	assert.Equal(t, "%22%E6%9D%B1%E4%BA%AC%22%20100%25", r.Header.Get("X-City"))
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.Equal(t, "Bearer token", r.Header.Get("Authorization"))
	assert.JSONEq(t, `{"k":"grüße"}`, rc.bodies[0])
	assert.Equal(t, digest.Short(big, digest.Most), digest.Short(rc.bodies[1], digest.Most), "compared by hash: it is long")
}

func TestLongIDBecomesAHash(t *testing.T) {
	rc := receive(t, nil)
	run := strings.Repeat("r", 300)
	_, err := publisher(t, rc.URL).Publish(t.Context(), []outbox.Message{brokertest.Message(t, run, 0, outbox.Message{})})
	require.NoError(t, err)
	assert.Regexp(t, "^[a-z2-7]{52}$", rc.got[0].Header.Get("Idempotency-Key"))
	assert.Equal(t, "#shop#"+run+"/notify/0", rc.got[0].Header.Get("Message-Id"))
}

func TestCloudEventsOverHTTP(t *testing.T) {
	rc := receive(t, nil)
	binary, err := outbox.CloudEventsBinary("/shop")
	require.NoError(t, err)
	structured, err := outbox.CloudEventsStructured("/shop")
	require.NoError(t, err)
	m := brokertest.Message(t, "a", 0, outbox.Message{Type: "order.created", Key: "größe 1", Body: []int{1}})
	for _, enc := range []outbox.Encoder{binary, structured} {
		res, err := publisher(t, rc.URL, webhook.WithEncoder(enc)).Publish(t.Context(), []outbox.Message{m})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
	}
	assert.Equal(t, "1.0", rc.got[0].Header.Get("Ce-Specversion"))
	assert.Equal(t, "order.created", rc.got[0].Header.Get("Ce-Type"))
	assert.Equal(t, "gr%C3%B6%C3%9Fe%201", rc.got[0].Header.Get("Ce-Subject"))
	assert.Equal(t, "[1]", rc.bodies[0])
	assert.Equal(t, outbox.ContentTypeCloudEvents, rc.got[1].Header.Get("Content-Type"))
	assert.Contains(t, rc.bodies[1], `"data":[1]`)
}

func TestAnswers(t *testing.T) {
	for code, want := range map[int]string{
		200: "sent", 202: "sent", 204: "sent",
		301: "refused", 307: "refused", 400: "refused", 401: "refused", 403: "refused", 404: "refused", 410: "refused", 413: "refused", 422: "refused",
		408: "failed", 409: "failed", 425: "failed", 500: "failed", 501: "failed",
	} {
		rc := receive(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		})
		res, err := publisher(t, rc.URL).Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
		require.NoError(t, err, code)
		assert.Equal(t, map[string]string{"a/0": want}, brokertest.Told(res), code)
		assert.Len(t, rc.got, 1, "redirects are not followed")
		if want != "sent" {
			var status *webhook.StatusError
			require.ErrorAs(t, res[0].Err, &status)
			assert.Equal(t, code, status.Code)
		}
	}
	for _, code := range []int{429, 502, 503, 504} {
		rc := receive(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
		})
		var msgs []outbox.Message
		for i := range 20 {
			msgs = append(msgs, brokertest.Message(t, fmt.Sprint("r", i), 0, outbox.Message{}))
		}
		_, err := publisher(t, rc.URL, webhook.WithConcurrency(1)).Publish(t.Context(), msgs)
		require.Error(t, err, "the only receiver says that it takes nothing: an outage")
		var asks interface{ RetryAfter() time.Duration }
		require.ErrorAs(t, err, &asks)
		assert.Equal(t, 7*time.Second, asks.RetryAfter())
		assert.Len(t, rc.got, 1, "it is not asked for every message")
	}
}

func TestUnreachableReceiverIsAnOutageUnlessThereAreOthers(t *testing.T) {
	rc := receive(t, nil)
	msgs := []outbox.Message{
		brokertest.Message(t, "a", 0, outbox.Message{Topic: "down"}), brokertest.Message(t, "a", 1, outbox.Message{Topic: "down"}),
		brokertest.Message(t, "b", 0, outbox.Message{}),
	}
	p := publisher(t, rc.URL, webhook.WithURL("down", "http://127.0.0.1:1/x?token=secret"), webhook.WithProbe(""))
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a/0": "failed", "a/1": "held", "b/0": "sent"}, brokertest.Told(res))
	for _, r := range res {
		assert.NotContains(t, fmt.Sprint(r.Err), "secret")
	}
	_, err = p.Publish(t.Context(), msgs[:1])
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}

func TestOneLaneIsPostedInOrder(t *testing.T) {
	rc := receive(t, func(w http.ResponseWriter, _ *http.Request, body string) {
		if body == "b 1" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	p := publisher(t, rc.URL)
	var msgs []outbox.Message
	for i := range 10 {
		msgs = append(msgs, brokertest.Message(t, "a", i, outbox.Message{}))
	}
	for i := range 3 {
		msgs = append(msgs, brokertest.Message(t, "b", i, outbox.Message{}))
	}
	res, err := p.Publish(t.Context(), msgs)
	require.NoError(t, err)
	got := brokertest.Told(res)
	assert.Equal(t, "sent", got["b/0"])
	assert.Equal(t, "refused", got["b/1"])
	assert.Equal(t, "held", got["b/2"])
	var order []string
	for _, body := range rc.bodies {
		if strings.HasPrefix(body, "a ") {
			order = append(order, body)
		}
	}
	require.Len(t, order, 10)
	for i, body := range order {
		assert.Equal(t, fmt.Sprint("a ", i), body)
	}
}

func TestCallerThatGivesUp(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	rc := receive(t, func(_ http.ResponseWriter, _ *http.Request, _ string) { close(entered); <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := publisher(t, rc.URL).Publish(ctx, []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.ErrorIs(t, err, context.Canceled)
}

func TestWhatCannotBeARequestIsRefusedHere(t *testing.T) {
	rc := receive(t, nil)
	p := publisher(t, "", webhook.WithURL("orders", rc.URL))
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "name", 0, outbox.Message{Attributes: map[string]string{"größe": "1"}}),
		brokertest.Message(t, "host", 0, outbox.Message{Attributes: map[string]string{"host": "evil.example"}}),
		brokertest.Message(t, "key", 0, outbox.Message{Attributes: map[string]string{"idempotency-key": "mine"}}),
		brokertest.Message(t, "topic", 0, outbox.Message{Topic: "unknown"}),
		brokertest.Message(t, "fine", 0, outbox.Message{Attributes: map[string]string{"X-A": "line\r\nX-Injected: 1"}}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"name/0": "refused", "host/0": "refused", "key/0": "refused", "topic/0": "refused", "fine/0": "sent"}, brokertest.Told(res))
	require.Len(t, rc.got, 1)
	assert.Empty(t, rc.got[0].Header.Get("X-Injected"))

	failing := errors.New("no credentials")
	p = publisher(t, rc.URL, webhook.WithProbe(""), webhook.WithRequest(func(*http.Request) error { return failing }))
	res, err = p.Publish(t.Context(), []outbox.Message{brokertest.Message(t, "a", 0, outbox.Message{})})
	require.NoError(t, err)
	assert.False(t, res[0].Refused, "credentials may come back")
	require.ErrorIs(t, res[0].Err, failing)
}

func TestARequestFunctionThatPanicsFailsItsMessageAlone(t *testing.T) {
	rc := receive(t, nil)
	p := publisher(t, rc.URL, webhook.WithProbe(""), webhook.WithRequest(func(r *http.Request) error {
		if strings.Contains(r.Header.Get("Idempotency-Key"), "bad") {
			panic("no credentials for this one")
		}
		return nil
	}))
	res, err := p.Publish(t.Context(), []outbox.Message{
		brokertest.Message(t, "bad", 0, outbox.Message{}), brokertest.Message(t, "bad", 1, outbox.Message{}), brokertest.Message(t, "good", 0, outbox.Message{}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"bad/0": "failed", "bad/1": "held", "good/0": "sent"}, brokertest.Told(res))
}

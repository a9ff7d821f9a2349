package brokertest

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
)

// Sink is a server that answers every SendMessageBatch at once, or after a fixed time, and forgets the messages: for
// benchmarks.
type Sink struct {
	// URL of the server.
	URL string

	latency time.Duration
}

// NewSink starts a server. It is closed when the test ends.
func NewSink(t testing.TB, latency time.Duration) *Sink {
	s := &Sink{latency: latency}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// ServeHTTP answers in the protocol awsJson1_0.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	var in struct {
		Entries []struct {
			ID          string `json:"Id"`
			MessageBody string `json:"MessageBody"`
		} `json:"Entries"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Entries) == 0 {
		answer(w, map[string]map[string]string{"Attributes": {}}) // GetQueueAttributes
		return
	}
	if s.latency > 0 {
		_ = clock.System().Sleep(r.Context(), s.latency)
	}
	out := make([]map[string]string, len(in.Entries))
	for i, e := range in.Entries {
		sum := md5.Sum([]byte(e.MessageBody))
		out[i] = map[string]string{"Id": e.ID, "MessageId": "m", "MD5OfMessageBody": hex.EncodeToString(sum[:])}
	}
	answer(w, map[string]any{"Successful": out, "Failed": []string{}})
}

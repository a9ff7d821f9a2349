package brokertest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Message is the index-th message of a run, as a relay hands it to a publisher: encoded, with an ID and a time, and with
// the run's key for an ordering key. Without a topic it goes to "orders", without a body it says "run index".
func Message(t testing.TB, run string, index int, m outbox.Message) outbox.Message {
	t.Helper()
	if m.Topic == "" {
		m.Topic = "orders"
	}
	if m.Body == nil {
		m.Body = []byte(fmt.Sprint(run, " ", index))
	}
	if m.Key == "" {
		m.Key = "#shop#" + run
	}
	enc, err := m.Encode()
	require.NoError(t, err)
	enc.ID = fmt.Sprintf("#shop#%s/notify/%d", run, index)
	enc.Time = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	return enc
}

// Told says what became of each message, by "run/index": sent, refused, held or failed.
func Told(results []outbox.Result) map[string]string {
	out := map[string]string{}
	for _, r := range results {
		id := strings.Replace(strings.TrimPrefix(r.ID, "#shop#"), "/notify/", "/", 1)
		switch {
		case r.Refused:
			out[id] = "refused"
		case errors.Is(r.Err, outbox.ErrHeldBack):
			out[id] = "held"
		case r.Err != nil:
			out[id] = "failed"
		default:
			out[id] = "sent"
		}
	}
	return out
}

package provider_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/provider"
)

// shop is a caller of a provider that runs on a port of its own.
type shop struct {
	t      *testing.T
	url    string
	books  *ledger.File
	client *http.Client
}

func newShop(t *testing.T, mood provider.Mood) *shop {
	t.Helper()
	books := ledger.Open(filepath.Join(t.TempDir(), "book"))
	url, stop, err := provider.Serve(t.Context(), provider.New(books, mood))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		assert.NoError(t, stop())
	})
	return &shop{t, url, books, client}
}

type reply struct {
	Status int    `json:"-"`
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
	Error  string `json:"error"`
}

func (s *shop) try(ctx context.Context, path, key, body string) (reply, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode}
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&r))
	return r, nil
}

func (s *shop) call(path, key, body string) reply {
	s.t.Helper()
	r, err := s.try(s.t.Context(), path, key, body)
	require.NoError(s.t, err)
	return r
}

func (s *shop) kinds() []string {
	s.t.Helper()
	all, err := s.books.Entries()
	require.NoError(s.t, err)
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestTheSameKeyChargesOnce(t *testing.T) {
	s := newShop(t, provider.Mood{})
	first := s.call("/charges", "k", `{"amount":1200}`)
	assert.Equal(t, http.StatusOK, first.Status)
	assert.Equal(t, int64(1200), first.Amount)
	assert.Equal(t, first, s.call("/charges", "k", `{"amount":1200}`))
	assert.Equal(t, []string{"charge"}, s.kinds())

	other := s.call("/charges", "k", `{"amount":1300}`)
	assert.Equal(t, reply{Status: http.StatusUnprocessableEntity, Error: "idempotency_key_reused"}, other)
	assert.NotEqual(t, first.ID, s.call("/charges", "l", `{"amount":1200}`).ID)
	assert.Equal(t, []string{"charge", "charge"}, s.kinds())
}

func TestMalformedCallsAreRefused(t *testing.T) {
	s := newShop(t, provider.Mood{})
	assert.Equal(t, "idempotency_key_missing", s.call("/charges", "", `{"amount":1200}`).Error)
	assert.Equal(t, "amount_invalid", s.call("/charges", "k", `{"amount":0}`).Error)
	assert.Equal(t, "amount_invalid", s.call("/charges", "k", `{`).Error)
	assert.Equal(t, "body_invalid", s.call("/refunds", "k", `[`).Error)
	assert.Equal(t, "charge_unknown", s.call("/refunds", "k", `{"charge_id":"ch_0"}`).Error)
	assert.Equal(t, "charge_key_missing", s.call("/voids", "k", `{}`).Error)
	assert.Empty(t, s.kinds())
}

func TestADeclineTakesNoEffect(t *testing.T) {
	s := newShop(t, provider.Mood{Decline: true})
	assert.Equal(t, reply{Status: http.StatusPaymentRequired, Error: "card_declined"}, s.call("/charges", "k", `{"amount":1200}`))
	assert.Empty(t, s.kinds())
}

func TestRefundsAreMadeOnce(t *testing.T) {
	s := newShop(t, provider.Mood{})
	charged := s.call("/charges", "k", `{"amount":1200}`)
	body := `{"charge_id":"` + charged.ID + `"}`
	first := s.call("/refunds", "k/compensate", body)
	assert.Equal(t, int64(1200), first.Amount)
	assert.Equal(t, first, s.call("/refunds", "k/compensate", body))
	assert.Equal(t, "already_undone", s.call("/refunds", "another key", body).Error)
	assert.Equal(t, []string{"charge", "refund"}, s.kinds())
}

func TestAVoidGivesBackWhatWasCharged(t *testing.T) {
	s := newShop(t, provider.Mood{})
	s.call("/charges", "k", `{"amount":1200}`)
	assert.Equal(t, int64(1200), s.call("/voids", "k/compensate", `{"charge_key":"k"}`).Amount)
	assert.Equal(t, []string{"charge", "refund"}, s.kinds())
}

func TestAVoidClosesAKeyThatWasNeverUsed(t *testing.T) {
	s := newShop(t, provider.Mood{})
	for range 2 {
		assert.Equal(t, http.StatusOK, s.call("/voids", "k/compensate", `{"charge_key":"k"}`).Status)
	}
	// The charge that was under way all the time, and arrives now.
	assert.Equal(t, reply{Status: http.StatusGone, Error: "key_closed"}, s.call("/charges", "k", `{"amount":1200}`))
	assert.Equal(t, []string{"void"}, s.kinds())
}

func TestALateAnswerComesAfterTheEffect(t *testing.T) {
	s := newShop(t, provider.Mood{Late: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := s.try(ctx, "/charges", "k", `{"amount":1200}`)
		answer <- err
	}()
	require.Eventually(t, func() bool { return len(s.kinds()) == 1 }, time.Minute, time.Millisecond, "it is charged")
	assert.Empty(t, answer, "and not answered")
	cancel()
	require.ErrorIs(t, <-answer, context.Canceled)
	assert.Equal(t, http.StatusOK, s.call("/charges", "k", `{"amount":1200}`).Status, "the same key again is answered at once")
	assert.Equal(t, []string{"charge"}, s.kinds())
}

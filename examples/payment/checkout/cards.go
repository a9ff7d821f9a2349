package checkout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/tsuzuki-go/tsuzuki/steps"
)

// HTTPCards calls a payment provider over HTTP.
type HTTPCards struct {
	url    string
	client *http.Client
}

var _ Cards = (*HTTPCards)(nil)

// NewHTTPCards returns a client of the provider at url.
func NewHTTPCards(url string) *HTTPCards {
	// A transport of its own, so that Close ends its connections and nobody else's.
	return &HTTPCards{url: url, client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}}
}

// Close ends idle connections.
func (c *HTTPCards) Close() { c.client.CloseIdleConnections() }

// Charge charges the card.
func (c *HTTPCards) Charge(ctx context.Context, amount int64, key string) (Charge, error) {
	var made Charge
	err := c.post(ctx, "/charges", key, map[string]int64{"amount": amount}, &made)
	return made, err
}

// Refund gives a charge back.
func (c *HTTPCards) Refund(ctx context.Context, chargeID, key string) error {
	return c.post(ctx, "/refunds", key, map[string]string{"charge_id": chargeID}, nil)
}

// VoidByKey undoes what was charged under chargeKey, or closes that key.
func (c *HTTPCards) VoidByKey(ctx context.Context, chargeKey, key string) error {
	return c.post(ctx, "/voids", key, map[string]string{"charge_key": chargeKey}, nil)
}

func (c *HTTPCards) post(ctx context.Context, path, key string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return steps.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return steps.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the payment provider: %w", err) // transient: nobody knows whether it arrived
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusPaymentRequired {
		return steps.Permanent(steps.WithCode(CodeDeclined, ErrDeclined)) // definite: nothing was charged
	}
	if err := steps.CheckResponse(resp); err != nil { // transient or permanent, as the status says
		return err
	}
	if answer == nil {
		_, err = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
		return err
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

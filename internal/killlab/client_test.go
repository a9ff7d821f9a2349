package killlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// client is a worker's way to the ledger, and the parent's.
type client struct {
	url    string
	worker int
	http   *http.Client
}

var (
	_ outside          = (*client)(nil)
	_ outbox.Publisher = (*client)(nil)
)

func newClient(url string, worker int) *client {
	return &client{url, worker, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) ask(ctx context.Context, path string, question, answer any) error {
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the ledger answers %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

var errBusy = errors.New("the participant is busy")

// call makes one call, and turns an answer that is a failure into an error.
func (c *client) call(ctx context.Context, what call) (line, error) {
	what.Sent, what.Worker = time.Now(), c.worker
	var l line
	if err := c.ask(ctx, "/call", what, &l); err != nil {
		return l, err
	}
	switch l.Answer {
	case answerOK, answerNo:
		return l, nil
	case answerDeclined:
		return l, steps.Permanent(steps.WithCode("declined", errors.New("declined")))
	}
	return l, fmt.Errorf("%w: %s", errBusy, l.Answer)
}

func (c *client) do(ctx context.Context, what call) (string, error) {
	l, err := c.call(ctx, what)
	return l.ID, err
}

func (c *client) undo(ctx context.Context, what call) error {
	_, err := c.call(ctx, what)
	return err
}

func (c *client) probe(ctx context.Context, what call) (string, bool, error) {
	l, err := c.call(ctx, what)
	return l.ID, err == nil && l.Answer == answerOK, err
}

// Publish sends messages to the ledger's queue.
func (c *client) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	var sent []outbox.Result
	for _, m := range msgs {
		if _, err := c.call(ctx, call{Kind: kindMessage, Key: m.ID, Body: string(m.Bytes())}); err != nil {
			return sent, err
		}
		sent = append(sent, outbox.Result{ID: m.ID})
	}
	return sent, nil
}

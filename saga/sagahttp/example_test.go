package sagahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Transfer is the input of the examples.
type Transfer struct {
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// Booking is their result.
type Booking struct {
	ID string `json:"id"`
}

// newTransfers is a saga of one step, which refuses large amounts for good.
func newTransfers() (*saga.Orchestrator[Transfer, Booking], error) {
	return saga.New(saga.Once("transfer", func(_ context.Context, r *steps.Run[Transfer]) (Booking, error) {
		fmt.Println("booking", r.Input.Amount)
		if r.Input.Amount > 1000 {
			return Booking{}, steps.WithCode("limit_exceeded", steps.Permanent(errors.New("over the limit of 1000")))
		}
		return Booking{ID: "bk-" + r.Key().ID}, nil
	}), memory.New())
}

// user stands for whatever authenticates a request.
func user(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return "", sagahttp.Status(http.StatusUnauthorized, errors.New("no credentials"))
	}
	return name, nil
}

// post sends one request and prints what matters of the answer.
func post(client *http.Client, url, key, body string) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.SetBasicAuth("alice", "")
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.StatusCode, resp.Header.Get("Idempotency-Replayed"), strings.TrimSpace(string(content)))
}

// The same request again gets the same answer, and the work is done once.
func ExampleHandler() {
	transfers, err := newTransfers()
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(sagahttp.Handler(transfers, sagahttp.Request[Transfer](user)))
	defer server.Close()

	post(server.Client(), server.URL, "k-1", `{"to":"bob","amount":12}`)
	post(server.Client(), server.URL, "k-1", `{"to":"bob","amount":12}`)
	// Output:
	// booking 12
	// 201  {"id":"bk-k-1"}
	// 201 true {"id":"bk-k-1"}
}

// A permanent failure has the status that its code stands for.
func ExampleWithFailure() {
	transfers, err := newTransfers()
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := sagahttp.Failure{Status: http.StatusForbidden, Title: "The amount is over your limit"}
	h := sagahttp.Handler(transfers, sagahttp.Request[Transfer](user), sagahttp.WithFailure("limit_exceeded", limit))

	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/transfers", strings.NewReader(`{"to":"bob","amount":5000}`))
	r.SetBasicAuth("alice", "")
	r.Header.Set("Idempotency-Key", `"k-2"`) // quoted, as the IETF draft has it
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output:
	// booking 5000
	// 403 application/problem+json
}

// A business key needs no Idempotency-Key, and a check before the run starts stores nothing.
func ExampleRefusal() {
	transfers, err := newTransfers()
	if err != nil {
		fmt.Println(err)
		return
	}
	h := sagahttp.Handler(transfers, func(r *http.Request) (saga.Key, Transfer, error) {
		in, err := sagahttp.JSON[Transfer](r)
		if err == nil && in.Amount <= 0 {
			err = &sagahttp.Refusal{Status: http.StatusUnprocessableEntity, Detail: "amount must be positive"}
		}
		return saga.Key{ID: r.URL.Query().Get("number")}, in, err
	}, sagahttp.WithTypes("https://api.example.com/problems/"))
	for _, body := range []string{`{"to":"bob","amount":0}`, `{"to":"bob","amount":3}`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/transfers?number=7", strings.NewReader(body)))
		var p sagahttp.Problem
		if w.Code == http.StatusCreated {
			fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
		} else if err := json.Unmarshal(w.Body.Bytes(), &p); err == nil {
			fmt.Println(p.Status, p.Type, p.Detail)
		}
	}
	// Output:
	// 422 https://api.example.com/problems/refused amount must be positive
	// booking 3
	// 201 {"id":"bk-7"}
}

// A client that doesn't give up before it knows.
func ExampleRetryTransport() {
	var first string
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		key := r.Header.Get("Idempotency-Key")
		if calls == 1 {
			first = key
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Println("call", calls, "has the same key:", key == first)
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()

	client := &http.Client{Transport: &sagahttp.RetryTransport{Base: server.Client().Transport}}
	post(client, server.URL, "", `{"to":"bob","amount":12}`)
	// Output:
	// call 2 has the same key: true
	// 201
}

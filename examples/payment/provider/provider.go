// Package provider is a small payment provider with what matters of the real ones: it is reached over HTTP, it charges
// once per Idempotency-Key, it can be asked to close a key whose charge nobody has seen an answer to, and it can answer
// too late.
package provider

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
)

// Mood is how the provider treats new charges. The zero value accepts them and answers at once.
type Mood struct {
	// Decline refuses them.
	Decline bool
	// Late makes them, or refuses them, but keeps the answer back until the caller has given up. The same key again is
	// answered at once.
	Late bool
}

// patience is how long a late answer is kept back at most, should the caller have no timeout.
const patience = 30 * time.Second

// Charge is the body of POST /charges and of its answer.
type Charge struct {
	// ID that the provider gave the charge; empty in a request.
	ID string `json:"id,omitempty"`
	// Amount in the smallest unit of the currency.
	Amount int64 `json:"amount"`
}

// Void is the body of POST /voids: it undoes whatever was charged under a key, and closes the key.
type Void struct {
	// ChargeKey is the Idempotency-Key that the charge carried, or would have carried.
	ChargeKey string `json:"charge_key"`
}

// Refund is the body of POST /refunds.
type Refund struct {
	// ChargeID of the charge.
	ChargeID string `json:"charge_id"`
}

// New returns the provider's HTTP interface: POST /charges, /refunds and /voids, each with an Idempotency-Key. Its books
// are kept in the ledger.
func New(books *ledger.File, mood Mood) http.Handler {
	p := &provider{books: books, mood: mood}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.handle(p.charge))
	mux.HandleFunc("POST /refunds", p.handle(p.refund))
	mux.HandleFunc("POST /voids", p.handle(p.void))
	return mux
}

type provider struct {
	books *ledger.File
	mood  Mood
	late  keySet
}

// refusal is an answer other than 200.
type refusal struct {
	status int
	code   string
}

func (e *refusal) Error() string { return e.code }

// handle reads the key and writes the answer.
func (p *provider) handle(f func(r *http.Request, key string) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			answer(w, http.StatusBadRequest, errorBody("idempotency_key_missing"))
			return
		}
		body, err := f(r, key)
		var no *refusal
		switch {
		case errors.As(err, &no):
			answer(w, no.status, errorBody(no.code))
		case err != nil:
			answer(w, http.StatusInternalServerError, errorBody(err.Error()))
		default:
			answer(w, http.StatusOK, body)
		}
	}
}

func (p *provider) charge(r *http.Request, key string) (any, error) {
	var in Charge
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Amount <= 0 {
		return nil, &refusal{http.StatusBadRequest, "amount_invalid"}
	}
	e, repeated, err := p.books.Once(key, func(past []ledger.Entry) (ledger.Entry, error) {
		if _, closed := ledger.Undone(past, key); closed {
			return ledger.Entry{}, &refusal{http.StatusGone, "key_closed"}
		}
		if p.mood.Decline {
			return ledger.Entry{}, &refusal{http.StatusPaymentRequired, "card_declined"}
		}
		return ledger.Entry{Kind: "charge", ID: ledger.ID("ch", key), Amount: in.Amount}, nil
	})
	if p.mood.Late && !repeated && p.late.add(key) {
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
	}
	if err != nil {
		return nil, err
	}
	if e.Kind != "charge" || e.Amount != in.Amount {
		return nil, &refusal{http.StatusUnprocessableEntity, "idempotency_key_reused"}
	}
	return Charge{ID: e.ID, Amount: e.Amount}, nil
}

func (p *provider) refund(r *http.Request, key string) (any, error) {
	var in Refund
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, &refusal{http.StatusBadRequest, "body_invalid"}
	}
	return p.undo(key, func(past []ledger.Entry) (ledger.Entry, error) {
		for _, e := range past {
			if e.Kind == "charge" && e.ID == in.ChargeID {
				return e, nil
			}
		}
		return ledger.Entry{}, &refusal{http.StatusNotFound, "charge_unknown"}
	})
}

func (p *provider) void(r *http.Request, key string) (any, error) {
	var in Void
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.ChargeKey == "" {
		return nil, &refusal{http.StatusBadRequest, "charge_key_missing"}
	}
	return p.undo(key, func(past []ledger.Entry) (ledger.Entry, error) {
		if e, ok := ledger.Find(past, in.ChargeKey); ok {
			return e, nil
		}
		return ledger.Entry{Kind: "void", Key: in.ChargeKey}, nil // nothing to give back, but the key is closed from now on
	})
}

// undo makes the entry that undoes the one that find returns.
func (p *provider) undo(key string, find func([]ledger.Entry) (ledger.Entry, error)) (any, error) {
	e, _, err := p.books.Once(key, func(past []ledger.Entry) (ledger.Entry, error) {
		what, err := find(past)
		if err != nil {
			return ledger.Entry{}, err
		}
		if _, done := ledger.Undone(past, what.Key); done {
			return ledger.Entry{}, &refusal{http.StatusUnprocessableEntity, "already_undone"}
		}
		if what.Kind == "void" {
			return ledger.Entry{Kind: "void", ID: ledger.ID("vo", key), Of: what.Key}, nil
		}
		return ledger.Entry{Kind: "refund", ID: ledger.ID("re", key), Amount: what.Amount, Of: what.Key}, nil
	})
	return Charge{ID: e.ID, Amount: e.Amount}, err
}

func errorBody(code string) map[string]string { return map[string]string{"error": code} }

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a caller who has gone asks again
}

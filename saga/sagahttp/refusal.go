package sagahttp

import (
	"fmt"
	"net/http"
)

// Refusal is an error of a request function, or of [StatusHandler]'s key function, that says how it is answered. The run
// has not started: nothing is stored, and the same key may be used again. Keyed literals only.
type Refusal struct {
	_ struct{}

	// Status of the answer, 400 to 599; anything else is answered with 500.
	Status int
	// Type is the problem's type, a URI; empty: the type "refused" of this package.
	Type string
	// Title is the problem's title; empty: the status in words.
	Title string
	// Detail is shown to the client; empty: none. Say what the client did wrong, and nothing of the inside.
	Detail string
	// Header is added to the answer's header, such as WWW-Authenticate on a 401.
	Header http.Header
	// Err is the cause, for the log; it is never shown to the client. May be nil.
	Err error

	kind *kind // of this package's own refusals, in place of Status, Type and Title
}

// Status is an error that is answered with this status: for a request function, so that a failed authentication is a 401
// and not the 400 of any other error. err is for the log; what the client may read goes into a [Refusal].
func Status(code int, err error) error {
	return &Refusal{Status: code, Err: err}
}

// Error says what was refused, and why.
func (e *Refusal) Error() string {
	k := e.as()
	s := fmt.Sprintf("sagahttp: refused with %d: %s", k.status, k.title)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Refusal) Unwrap() error { return e.Err }

// as is the kind of problem that it is answered with.
func (e *Refusal) as() kind {
	if e.kind != nil {
		return *e.kind
	}
	k := kindRefused
	k.status = e.Status
	if k.status < 400 || k.status > 599 {
		return kindInternal
	}
	k.title = e.Title
	if k.title == "" {
		k.title = http.StatusText(k.status)
	}
	if k.title == "" {
		k.title = kindRefused.title
	}
	return k
}

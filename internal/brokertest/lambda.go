package brokertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Invocation is an asynchronous invocation that Lambda was given.
type Invocation struct {
	// Function that was named, with a qualifier if there was one.
	Function string
	// Execution is the durable execution's name, if one was given.
	Execution string
	// Payload is the event.
	Payload string
}

// Lambda is a server that takes Invoke, as a dry run and asynchronously.
type Lambda struct {
	// URL of the server.
	URL string

	mu          sync.Mutex
	functions   map[string]bool
	invocations []Invocation
	executions  map[string]string // payload by function and name
	whole       func(Invocation) (status int, code string)
}

// NewLambda starts a server with these functions. It is closed when the test ends.
func NewLambda(t testing.TB, functions ...string) *Lambda {
	s := &Lambda{functions: map[string]bool{}, executions: map[string]string{}}
	for _, f := range functions {
		s.functions[f] = true
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// Fail asks f for the status and error code of every asynchronous invocation; 0: it is taken.
func (s *Lambda) Fail(f func(Invocation) (status int, code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = f
}

// Invocations are those taken so far, in order.
func (s *Lambda) Invocations() []Invocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Invocation(nil), s.invocations...)
}

var (
	invokePath    = regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/invocations$`)
	executionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`) // of Invoke's DurableExecutionName
)

// asyncBytes is the limit of an asynchronous invocation's payload, 1 MB.
const asyncBytes = 1 << 20

// ServeHTTP answers in the protocol restJson1.
func (s *Lambda) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := invokePath.FindStringSubmatch(r.URL.EscapedPath())
	if m == nil || r.Method != http.MethodPost {
		fail(w, http.StatusNotFound, "UnknownOperationException", r.URL.Path)
		return
	}
	name, _ := url.PathUnescape(m[1])
	body, _ := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	in := Invocation{Function: name, Execution: r.Header.Get("X-Amz-Durable-Execution-Name"), Payload: string(body)}
	switch kind := r.Header.Get("X-Amz-Invocation-Type"); {
	case !s.functions[name]:
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "Function not found: "+name)
	case kind == "DryRun":
		w.WriteHeader(http.StatusNoContent)
	case kind != "Event":
		fail(w, http.StatusBadRequest, "InvalidParameterValueException", "only asynchronous invocations here")
	default:
		s.invoke(w, in)
	}
}

func (s *Lambda) invoke(w http.ResponseWriter, in Invocation) {
	if s.whole != nil {
		if status, code := s.whole(in); status != 0 {
			fail(w, status, code, "made to fail")
			return
		}
	}
	taken, known := s.executions[in.Function+"\x00"+in.Execution]
	switch {
	case len(in.Payload) > asyncBytes:
		fail(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request must be smaller than 1048576 bytes for the InvokeFunction operation")
	case !json.Valid([]byte(in.Payload)):
		fail(w, http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json")
	case in.Execution == "":
		s.invocations = append(s.invocations, in)
		w.WriteHeader(http.StatusAccepted)
	case !executionName.MatchString(in.Execution) || !strings.Contains(in.Function, ":"):
		fail(w, http.StatusBadRequest, "InvalidParameterValueException", "not a durable execution's name, or no qualified function")
	case known && taken != in.Payload:
		fail(w, http.StatusConflict, "DurableExecutionAlreadyStartedException", "it was started with another payload")
	default:
		if !known {
			s.executions[in.Function+"\x00"+in.Execution] = in.Payload
			s.invocations = append(s.invocations, in)
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

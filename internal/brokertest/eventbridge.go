package brokertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// Event is an event that EventBridge was given.
type Event struct {
	EventBusName string   `json:"EventBusName"`
	Source       string   `json:"Source"`
	DetailType   string   `json:"DetailType"`
	Detail       string   `json:"Detail"`
	Time         float64  `json:"Time"` // in seconds
	Resources    []string `json:"Resources"`
}

// EventBridge is a server that takes PutEvents and DescribeEventBus.
type EventBridge struct {
	// URL of the server.
	URL string

	mu       sync.Mutex
	buses    map[string]bool
	events   []Event
	requests [][]Event
	entry    func(Event) (code string)
	whole    func() (status int, code string)
}

// NewEventBridge starts a server with these buses. It is closed when the test ends.
func NewEventBridge(t testing.TB, buses ...string) *EventBridge {
	s := &EventBridge{buses: map[string]bool{}}
	for _, b := range buses {
		s.buses[b] = true
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// FailEntries asks f for the error code of every entry; none: it is taken.
func (s *EventBridge) FailEntries(f func(Event) (code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry = f
}

// FailRequests asks f for the status and error code of every PutEvents; 0: it is worked on.
func (s *EventBridge) FailRequests(f func() (status int, code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = f
}

// Events are those taken so far, in order.
func (s *EventBridge) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...)
}

// Requests are the entries of every PutEvents that was worked on.
func (s *EventBridge) Requests() [][]Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]Event(nil), s.requests...)
}

// ServeHTTP answers in the protocol awsJson1_1.
func (s *EventBridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
	case "DescribeEventBus":
		s.describe(w, body)
	case "PutEvents":
		s.put(w, body)
	default:
		fail(w, http.StatusBadRequest, "UnknownOperationException", op)
	}
}

func (s *EventBridge) describe(w http.ResponseWriter, body []byte) {
	var in struct {
		Name string `json:"Name"`
	}
	_ = json.Unmarshal(body, &in)
	if !s.buses[in.Name] {
		fail(w, http.StatusBadRequest, "ResourceNotFoundException", "Event bus "+in.Name+" does not exist.")
		return
	}
	answer(w, map[string]string{"Name": in.Name})
}

// Limits of PutEvents as the API reference gives them.
const (
	putEntries = 10
	putBytes   = 1 << 20
)

func (s *EventBridge) put(w http.ResponseWriter, body []byte) {
	var in struct {
		Entries []Event `json:"Entries"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		fail(w, http.StatusBadRequest, "SerializationException", err.Error())
		return
	}
	if s.whole != nil {
		if status, code := s.whole(); status != 0 {
			fail(w, status, code, "made to fail")
			return
		}
	}
	total := 0
	for _, e := range in.Entries {
		total += e.size()
	}
	switch {
	case len(in.Entries) == 0 || len(in.Entries) > putEntries:
		fail(w, http.StatusBadRequest, "ValidationException", "1 validation error detected: 'entries' must have length less than or equal to 10")
		return
	case total >= putBytes:
		fail(w, http.StatusBadRequest, "ValidationException", "Total size of the entries in the request is over the limit.")
		return
	}
	s.requests = append(s.requests, in.Entries)
	var failed int
	var entries []map[string]string
	for _, e := range in.Entries {
		code := s.check(e)
		if code == "" && s.entry != nil {
			code = s.entry(e)
		}
		if code != "" {
			failed++
			entries = append(entries, map[string]string{"ErrorCode": code, "ErrorMessage": "made to fail"})
			continue
		}
		s.events = append(s.events, e)
		entries = append(entries, map[string]string{"EventId": "e-1"})
	}
	answer(w, map[string]any{"FailedEntryCount": failed, "Entries": entries})
}

// check is what EventBridge says of an entry by itself.
func (s *EventBridge) check(e Event) (code string) {
	switch {
	case e.Source == "" || e.DetailType == "" || e.Detail == "", utf8.RuneCountInString(e.DetailType) > 128:
		return "InvalidArgument"
	case strings.HasPrefix(e.Source, "aws."):
		return "NotAuthorizedForSourceException"
	case !json.Valid([]byte(e.Detail)), !bytes.HasPrefix(bytes.TrimSpace([]byte(e.Detail)), []byte("{")):
		return "MalformedDetail"
	case !s.buses[e.EventBusName]:
		return "InvalidArgument"
	}
	return ""
}

func (e Event) size() int {
	n := len(e.Source) + len(e.DetailType) + len(e.Detail)
	if e.Time != 0 {
		n += 14
	}
	for _, r := range e.Resources {
		n += len(r)
	}
	return n
}

func answer(w http.ResponseWriter, v any) {
	send(w, http.StatusOK, v)
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Amzn-ErrorType", code)
	send(w, status, map[string]string{"__type": code, "message": message})
}

func send(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(err.Error())
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

package dynamotest

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands before a server. Its methods may be called concurrently.
type Proxy struct {
	// URL is where clients find it, in other processes too.
	URL string

	upstream string
	allOld   bool
	http     http.Client
	faults   atomic.Pointer[func(Request) *Fault]
	sent     atomic.Int64

	mu sync.Mutex // one write at a time, so that the old item is the one that made the condition fail

	ttl   ttls
	index indexes
}

// Start puts a proxy before the server, until the test ends. allOld tells whether it sends the old item on a failed
// condition; otherwise it takes it away from a server that does.
func Start(tb testing.TB, allOld bool) *Proxy {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p := &Proxy{upstream: Endpoint(tb), allOld: allOld, http: http.Client{Transport: transport}}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	p.URL = server.URL
	return p
}

// Break asks f about each call from now on; nil: nothing is broken.
func (p *Proxy) Break(f func(Request) *Fault) {
	if f == nil {
		p.faults.Store(nil)
		return
	}
	p.faults.Store(&f)
}

// BreakOnce breaks the next call that match picks, and none after it. It returns whether that has come, to be asked later.
func (p *Proxy) BreakOnce(fault *Fault, match func(Request) bool) (done func() bool) {
	var used atomic.Bool
	p.Break(func(r Request) *Fault {
		if match(r) && used.CompareAndSwap(false, true) {
			return fault
		}
		return nil
	})
	return used.Load
}

// Requests is how many calls have come.
func (p *Proxy) Requests() int { return int(p.sent.Load()) }

// response is what a server has answered.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.sent.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	call := Request{Operation: operation, Body: body}
	fault := &Fault{}
	if f := p.faults.Load(); f != nil {
		if broken := (*f)(call); broken != nil {
			fault = broken
		}
	}
	var res *response
	if !fault.Unsent {
		res = p.answer(call, r)
	}
	if fault.Answer != nil {
		res = errorResponse(*fault.Answer)
	}
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
		}
	}
	if fault.Drop || res == nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close a connection without an answer
	}
	res.write(w)
}

// answer is the server's, with what it lacks; nil when it can't be reached.
func (p *Proxy) answer(call Request, r *http.Request) *response {
	switch {
	case call.Operation == "UpdateTimeToLive" || call.Operation == "DescribeTimeToLive":
		return p.timeToLive(call, r)
	case call.Operation == "Query":
		return p.query(call, r)
	case call.Write():
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.withOldItem(call, r, p.forward(call, r))
	}
	return p.forward(call, r)
}

func (p *Proxy) forward(call Request, r *http.Request) *response {
	// A call that has come is made, whether its caller lives to hear of it or not: so does the service, and a server for
	// tests may fall over a client that goes away before its answer.
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodPost, p.upstream+"/", bytes.NewReader(call.Body))
	if err != nil {
		return nil
	}
	req.Header = r.Header.Clone()
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+call.Operation)
	req.Header.Del("Accept-Encoding")
	res, err := p.http.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	return &response{res.StatusCode, res.Header, body}
}

func (r *response) write(w http.ResponseWriter) {
	for k, v := range r.header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(r.body)), 10))
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // a client that has gone needs no answer
}

func jsonResponse(status int, v any) *response {
	body, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return &response{status, http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, body}
}

func errorResponse(a Answer) *response {
	return jsonResponse(a.Status, map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + a.Code, "message": a.Message})
}

// code is the name of the error in a response, or empty.
func (r *response) code() string {
	if r == nil || r.status == http.StatusOK {
		return ""
	}
	var e struct {
		Type string `json:"__type"`
	}
	if json.Unmarshal(r.body, &e) != nil {
		return ""
	}
	_, name, _ := strings.Cut(e.Type, "#")
	return name
}

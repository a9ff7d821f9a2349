package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
)

// served is a process that serves orders.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	errs bytes.Buffer
	rest chan string // what it says after its address, once it has ended
}

var listening = regexp.MustCompile(`orders at http://(\S+)/orders`)

// serve starts a process and waits until it takes requests.
func (f *folder) serve(addr string, args ...string) *served {
	f.t.Helper()
	s := &served{t: f.t, rest: make(chan string, 1)}
	s.cmd = exec.CommandContext(f.t.Context(), program(f.t), append([]string{"--http", addr}, args...)...)
	s.cmd.Dir, s.cmd.Stderr = f.work, &s.errs
	s.cmd.Env = append(os.Environ(), "TMPDIR="+f.tmp, "TMP="+f.tmp)
	s.cmd.WaitDelay = time.Minute
	out, err := s.cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, s.cmd.Start())
	lines := bufio.NewReader(out)
	for s.addr == "" {
		line, err := lines.ReadString('\n')
		require.NoError(f.t, err, "it has ended without serving: %s", &s.errs)
		if m := listening.FindStringSubmatch(line); m != nil {
			s.addr = m[1]
		}
	}
	go func() {
		all, _ := io.ReadAll(lines)
		s.rest <- string(all)
	}()
	return s
}

// end waits for the process's end.
func (s *served) end() (said string, code int) {
	s.t.Helper()
	said = <-s.rest
	_ = s.cmd.Wait() // the code says it all
	return said, s.cmd.ProcessState.ExitCode()
}

// interrupt ends the process as Ctrl-C does.
func (s *served) interrupt() (said string, code int) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(os.Interrupt))
	return s.end()
}

func skipWithoutInterrupt(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process can't be interrupted politely on Windows")
	}
}

const anOrder = `{"order_no":"order-001","sku":"tea-100","quantity":2,"amount":1200}`

// reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (s *served) post(client *http.Client, key, body string) reply {
	s.t.Helper()
	ctx := s.t.Context()
	if key != "" {
		ctx = sagahttp.KeyContext(ctx, key)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/orders", strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	return s.do(client, req)
}

func (s *served) get(client *http.Client, key string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+"/orders/"+key, nil)
	require.NoError(s.t, err)
	return s.do(client, req)
}

func (s *served) do(client *http.Client, req *http.Request) reply {
	s.t.Helper()
	resp, err := client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{resp.StatusCode, resp.Header, body}
}

// as is the answer's content, decoded.
func as[T any](t *testing.T, r reply) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.body, &v))
	return v
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: &sagahttp.RetryTransport{Base: base, Attempts: 100, LongestWait: 3 * time.Second}}
}

// The client sends one request. The process that works on it dies, and another one is started in its place.
func TestAClientDoesNotNoticeThatTheServerDied(t *testing.T) {
	t.Parallel()
	skipWithoutInterrupt(t)
	f, client := newFolder(t), newClient(t)
	first := f.serve("127.0.0.1:0", "--db", "runs.db", "--crash-after", checkout.ChargeCard)
	answer := make(chan reply)
	go func() {
		defer close(answer)
		answer <- first.post(client, "", anOrder)
	}()
	said, code := first.end()
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "the process dies before that is recorded")

	second := f.serve(first.addr, "--db", "runs.db")
	resp := <-answer
	assert.Equal(t, http.StatusCreated, resp.status)
	receipt := as[checkout.Receipt](t, resp)
	assert.Equal(t, "order-001", receipt.OrderNo)
	assert.NotEmpty(t, receipt.ChargeID)
	said, code = second.interrupt()
	assert.Zero(t, code, second.errs.String())
	assert.Contains(t, said, "attempt 2 with the same key")
	assert.Contains(t, said, "the queue: one message\n")
	assert.Contains(t, said, "ledger: one charge\n")
}

func TestOrdersOverHTTP(t *testing.T) {
	t.Parallel()
	skipWithoutInterrupt(t)
	f, client := newFolder(t), newClient(t)
	s := f.serve("127.0.0.1:0")

	resp := s.post(client, "order-001", anOrder)
	assert.Equal(t, http.StatusCreated, resp.status)
	first := as[checkout.Receipt](t, resp)
	resp = s.post(client, "order-001", anOrder)
	assert.Equal(t, http.StatusCreated, resp.status)
	assert.Equal(t, "true", resp.header.Get("Idempotency-Replayed"))
	assert.Equal(t, first, as[checkout.Receipt](t, resp))
	assert.Equal(t, `</orders/order-001>; rel="status"`, resp.header.Get("Link"))

	resp = s.post(client, "order-001", strings.Replace(anOrder, "1200", "1", 1))
	assert.Equal(t, http.StatusUnprocessableEntity, resp.status)
	assert.Contains(t, as[sagahttp.Problem](t, resp).Type, "#key-reused")
	resp = s.post(client, "order-002", strings.Replace(anOrder, "1200", "0", 1))
	assert.Equal(t, http.StatusUnprocessableEntity, resp.status)
	assert.Equal(t, "amount and quantity must be positive", as[sagahttp.Problem](t, resp).Detail)

	assert.Equal(t, http.StatusNotFound, s.get(client, "order-002").status)
	resp = s.get(client, "order-001")
	assert.Equal(t, http.StatusOK, resp.status)
	is := as[sagahttp.RunStatus](t, resp)
	assert.Len(t, is.Steps, len(checkout.Steps()))
	receipt, err := json.Marshal(first)
	require.NoError(t, err)
	assert.JSONEq(t, string(receipt), string(is.Result))
	_, code := s.interrupt()
	assert.Zero(t, code)
	f.leavesNothing()
}

func TestADeclinedOrderOverHTTP(t *testing.T) {
	t.Parallel()
	skipWithoutInterrupt(t)
	f, client := newFolder(t), newClient(t)
	s := f.serve("127.0.0.1:0", "--decline")
	for _, replayed := range []string{"", "true"} {
		resp := s.post(client, "order-001", anOrder)
		assert.Equal(t, http.StatusPaymentRequired, resp.status)
		assert.Equal(t, replayed, resp.header.Get("Idempotency-Replayed"))
		p := as[sagahttp.Problem](t, resp)
		assert.Equal(t, "The card was declined", p.Title)
		assert.Equal(t, "card_declined", p.Code)
	}
	said, code := s.interrupt()
	assert.Zero(t, code)
	assert.Contains(t, said, "ledger: no charge\n")
}

func TestAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	skipWithoutInterrupt(t)
	f := newFolder(t)
	s := f.serve("127.0.0.1:0")
	_, errs, code := f.pay("--http", s.addr)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "address already in use")
	_, code = s.interrupt()
	assert.Zero(t, code)
	f.leavesNothing()
}

// What README.md shows is what happens: its commands are run as they stand, but for the address.
func TestTheCurlCommandsOfTheREADME(t *testing.T) {
	t.Parallel()
	skipWithoutInterrupt(t)
	curl, err := exec.LookPath("curl")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("curl is not there, so the commands of README.md are not tested")
	}
	require.NoError(t, err)
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^curl (?:.*\\\n)*.*$`).FindAllString(string(page), -1)
	require.Len(t, commands, 2, "one makes an order and one asks for it")

	f := newFolder(t)
	s := f.serve("127.0.0.1:0")
	run := func(command string) string {
		command = curl + " -sS " + strings.TrimPrefix(command, "curl ")
		command = strings.ReplaceAll(command, "localhost:8080", s.addr)
		out, err := exec.CommandContext(context.Background(), "sh", "-c", command).CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
		return strings.ReplaceAll(string(out), "\r\n", "\n")
	}
	first, again := run(commands[0]), run(commands[0])
	assert.Contains(t, first, "HTTP/1.1 201 Created\n")
	assert.NotContains(t, first, "Idempotency-Replayed")
	assert.Contains(t, again, "HTTP/1.1 201 Created\n")
	assert.Contains(t, again, "Idempotency-Replayed: true\n")
	_, body, _ := strings.Cut(first, "\n\n")
	_, bodyAgain, _ := strings.Cut(again, "\n\n")
	assert.Contains(t, body, "charge_id")
	assert.Equal(t, body, bodyAgain)
	assert.Contains(t, run(commands[1]), `"status":"COMPLETED"`)
	_, code := s.interrupt()
	assert.Zero(t, code)
}

package dynamostore_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// calls are all methods of a store that send something, on the run r.
func calls(s *dynamostore.Store, r *state.Record) map[string]func(ctx context.Context) error {
	b := outbox.Batch{RunKey: r.Key, Token: "token"}
	return map[string]func(ctx context.Context) error{
		"Create": func(ctx context.Context) error { _, err := s.Create(ctx, r); return err },
		"Commit": func(ctx context.Context) error { return s.Commit(ctx, to(r, state.StatusInProgress)) },
		"RequestCancel": func(ctx context.Context) error {
			return s.RequestCancel(ctx, r.Key, state.CancelRequest{})
		},
		"Get":    func(ctx context.Context) error { _, err := s.Get(ctx, r.Key); return err },
		"List":   func(ctx context.Context) error { _, err := s.List(ctx, state.Query{}); return err },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, r.Key) },
		"Claim":  func(ctx context.Context) error { _, err := s.Claim(ctx, 1, time.Minute); return err },
		"Sent":   func(ctx context.Context) error { return s.Sent(ctx, b, []string{"m"}) },
		"Park":   func(ctx context.Context) error { return s.Park(ctx, b, "m", "why") },
		"Parked": func(ctx context.Context) error { _, _, err := s.Parked(ctx, ""); return err },
		"Unpark": func(ctx context.Context) error { return s.Unpark(ctx, r.Key+"/s/0", true, "why") },
	}
}

// namedErrors are those after which it is certain that nothing was written.
var namedErrors = []error{
	state.ErrConflict, state.ErrTooLarge, state.ErrNotFound, state.ErrNotAllowed, state.ErrUnsupported, state.ErrCorrupt, state.ErrTransition,
	state.ErrInvalidInput, state.ErrNewerRecord, outbox.ErrClaimLost, outbox.ErrNotParked,
}

func noNamedError(t *testing.T, err error) {
	t.Helper()
	for _, named := range namedErrors {
		require.NotErrorIs(t, err, named)
	}
}

// Whatever the server says, each call says what to do about it, and passes for no refusal of the store's own.
func TestErrorsSayWhatToDo(t *testing.T) {
	p := dynamotest.Start(t, true)
	client := dynamotest.Client(t, p.URL, once)
	s, err := dynamostore.New(client, newTable(t, client))
	require.NoError(t, err)
	r := newCostlyRun(1, 100, 60).Record
	for _, c := range []struct {
		status              int
		code, message, want string
	}{
		{400, "ResourceNotFoundException", "Requested resource not found", "make it with dynamostore.CreateTable"},
		{400, "AccessDeniedException", "User is not authorized", "docs/infra has the policy"},
		{400, "UnrecognizedClientException", "The security token included in the request is invalid.", "the credentials are not known"},
		{400, "MissingAuthenticationTokenException", "Request is missing Authentication Token", "there are no credentials"},
		{400, "ExpiredTokenException", "The security token included in the request is expired", "the credentials have expired"},
		{400, "ProvisionedThroughputExceededException", "exceeded", "throttled"},
		{400, "ThrottlingException", "Rate of requests exceeds the allowed throughput.", "throttled"},
		{400, "RequestLimitExceeded", "Throughput exceeds the current throughput limit for your account.", "throttled"},
		{400, "InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than 20260101T010000Z", "clock is wrong"},
		{400, "InvalidSignatureException", "Signature not yet current: 20260101T000000Z is still later than", "clock is wrong"},
		{400, "InvalidSignatureException", "The request signature we calculated does not match", "secret key is wrong"},
		{400, "ValidationException", "The table does not have the specified index: open", "lacks the index"},
		{500, "InternalServerError", "The request processing has failed", "InternalServerError"},
		{400, "ValidationException", "Something is malformed", "Something is malformed"},
	} {
		p.Break(func(dynamotest.Request) *dynamotest.Fault { return dynamotest.Refuse(c.status, c.code, c.message) })
		for name, call := range calls(s, r) {
			err := call(t.Context())
			require.ErrorContains(t, err, c.want, name)
			require.ErrorContains(t, err, dynamostore.TableOf(s), name)
			noNamedError(t, err)
			var sdk interface{ ErrorCode() string }
			require.ErrorAs(t, err, &sdk, name)
			assert.Equal(t, c.code, sdk.ErrorCode())
			assert.NotContains(t, err.Error(), string(r.Input), "no payload in an error")
		}
	}
}

func TestATableThatIsMissing(t *testing.T) {
	s, err := dynamostore.New(dynamotest.Client(t, dynamotest.Endpoint(t)), "no-such-table")
	require.NoError(t, err)
	for name, call := range calls(s, newCostlyRun(1, 100, 60).Record) {
		err := call(t.Context())
		require.ErrorContains(t, err, "no such table", name)
		noNamedError(t, err)
	}
}

func TestAServerThatCantBeReached(t *testing.T) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := dynamostore.New(dynamotest.NewClient("http://127.0.0.1:1", transport, once), "table")
	require.NoError(t, err)
	for name, call := range calls(s, newCostlyRun(1, 100, 60).Record) {
		err := call(t.Context())
		require.ErrorContains(t, err, "no answer from the server", name)
		noNamedError(t, err)
	}
}

func TestACallerThatStopsWaiting(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	p.Break(func(dynamotest.Request) *dynamotest.Fault { return dynamotest.Slow(time.Minute) })
	for name, call := range calls(s, newCostlyRun(1, 100, 60).Record) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		noNamedError(t, err)
	}
}

func TestAnHTTPClientThatStopsWaiting(t *testing.T) {
	p := dynamotest.Start(t, true)
	table := dynamostore.TableOf(newStore(t, p))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := dynamostore.New(dynamotest.NewClient(p.URL, transport, once, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: transport, Timeout: 20 * time.Millisecond}
	}), table)
	require.NoError(t, err)
	p.Break(func(dynamotest.Request) *dynamotest.Fault { return dynamotest.Slow(time.Minute) })
	for name, call := range calls(s, newCostlyRun(1, 100, 60).Record) {
		err := call(t.Context())
		require.ErrorContains(t, err, "no answer in time", name)
		noNamedError(t, err)
	}
}

func TestTooLarge(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	most := s.Capabilities().MaxValue

	t.Run("a payload", func(t *testing.T) {
		r := newCostlyRun(2, most, most)
		r.Key = "t#o#" + strings.Repeat("k", state.MaxKey-4)
		r.create(t, s)
		ch := r.step(0)
		ch.Messages = []outbox.Message{{ID: r.Key + "/s/0", Topic: "t", Body: []byte(jsonOf(most)), Time: r.CreatedAt}}
		r.commit(t, s, ch)
		r.stored(t, s)

		before := p.Requests()
		over := newCostlyRun(1, most+1, 60)
		over.Key = "t#o#over"
		_, err := s.Create(t.Context(), over.Record)
		require.ErrorIs(t, err, state.ErrTooLarge)
		last := r.step(1)
		last.Response = jsonOf(most + 1)
		require.ErrorIs(t, s.Commit(t.Context(), last), state.ErrTooLarge)
		last = r.step(1)
		last.Messages = []outbox.Message{{ID: r.Key + "/s/1", Topic: "t", Body: []byte(jsonOf(most + 1))}}
		last.ExpiresAt = time.Time{}
		require.ErrorIs(t, s.Commit(t.Context(), last), state.ErrTooLarge)
		assert.Equal(t, before, p.Requests(), "nothing was sent")
		r.stored(t, s)
	})
	t.Run("a header", func(t *testing.T) {
		r := newCostlyRun(1, 100, 60)
		r.Key = "t#o#header"
		note := state.AuditEntry{Verb: "retry", Note: strings.Repeat("n", 1000), At: r.CreatedAt}
		for range 405 {
			r.Audit = append(r.Audit, note)
		}
		before := p.Requests()
		_, err := s.Create(t.Context(), r.Record)
		require.ErrorIs(t, err, state.ErrTooLarge)
		assert.Equal(t, before, p.Requests(), "nothing was sent")

		r.Audit = r.Audit[:350]
		r.create(t, s)
		ch := to(r.Record, state.StatusInProgress)
		for range 60 {
			ch.Audit = append(ch.Audit, note)
		}
		err = s.Commit(t.Context(), ch)
		require.ErrorIs(t, err, state.ErrTooLarge, "told by the server")
		assert.NotContains(t, err.Error(), "nnnn")
		r.stored(t, s)
	})
}

func TestNew(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{})
	_, err := dynamostore.New(nil, "table")
	require.ErrorContains(t, err, "client is nil")
	_, err = dynamostore.New(client, "")
	require.ErrorContains(t, err, "no name")
	for want, opt := range map[string]dynamostore.Option{
		"nil option":                      nil,
		`no attribute "key"`:              dynamostore.WithAttribute("key", "pk"),
		"1 to 255 bytes":                  dynamostore.WithAttribute("owner", ""),
		`two attributes are named "part"`: dynamostore.WithAttribute("idempotency_key", "part"),
		"3 to 255":                        dynamostore.WithIndex("i"),
		"WithShards(0)":                   dynamostore.WithShards(0),
		"WithShards(1001)":                dynamostore.WithShards(1001),
		"WithOldShards(-1)":               dynamostore.WithOldShards(-1),
		"WithClock(nil)":                  dynamostore.WithClock(nil),
		"WithUnreadable(nil)":             dynamostore.WithUnreadable(nil),
	} {
		_, err := dynamostore.New(client, "table", opt)
		require.ErrorContains(t, err, want)
		_, err = dynamostore.NewMeter(client, opt)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, dynamostore.CreateTable(t.Context(), client, "table", opt), want)
		require.ErrorContains(t, dynamostore.Check(t.Context(), client, "table", opt), want)
	}
}

// A transaction of someone else's that does not end in time is told, after some tries.
func TestAnotherOnesTransaction(t *testing.T) {
	p := dynamotest.Start(t, true)
	s := newStore(t, p)
	r := newCostlyRun(1, 100, 60)
	p.Break(func(dynamotest.Request) *dynamotest.Fault { return dynamotest.TransactionConflict() })
	before := p.Requests()
	_, err := s.Create(t.Context(), r.Record)
	require.ErrorContains(t, err, "a transaction of someone else")
	noNamedError(t, err)
	assert.Greater(t, p.Requests()-before, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	p.Break(func(dynamotest.Request) *dynamotest.Fault {
		cancel(errors.New("enough"))
		return dynamotest.TransactionConflict()
	})
	_, err = s.Create(ctx, r.Record)
	require.Error(t, err)
	noNamedError(t, err)
}

package sagahttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagahttp"
)

// table is every kind of error that a run can end in.
var table = []struct {
	kind       error
	status     int
	slug       string
	retryAfter bool
}{
	{saga.ErrInProgress, 409, "in-progress", true},
	{saga.ErrInterrupted, 503, "interrupted", true},
	{saga.ErrFailed, 422, "failed", false},
	{saga.ErrReversed, 422, "reversed", false},
	{saga.ErrBlocked, 500, "blocked", false},
	{saga.ErrPayloadMismatch, 422, "key-reused", false},
	{saga.ErrLeaseLost, 409, "in-progress", true},
	{saga.ErrDefinitionChanged, 500, "internal", false},
	{saga.ErrInvalidKey, 400, "key-invalid", false},
	{saga.ErrInvalidInput, 400, "body-invalid", false},
	{saga.ErrTooLarge, 413, "too-large", false},
	{saga.ErrStore, 503, "unavailable", true},
	{saga.ErrNotFound, 404, "not-found", false},
	{saga.ErrNotAllowed, 409, "not-allowed", false},
}

// answering is a handler whose runs end in this error.
func answering(err error, opts ...sagahttp.Option) http.Handler {
	return sagahttp.Handler(fake[order, receipt](func(context.Context, saga.Key, order) (receipt, error) {
		return receipt{}, err
	}), usual, opts...)
}

func TestEveryKindOfErrorHasItsAnswer(t *testing.T) {
	for _, row := range table {
		t.Run(row.slug+" "+row.kind.Error(), func(t *testing.T) {
			full := &saga.Error{Kind: row.kind, Key: saga.Key{Tenant: "s3cret-tenant", Operation: "checkout", ID: theKey}, Step: "s3cret_step",
				RetryAfter: 6100 * time.Millisecond, NotUndone: []string{"s3cret_undo"},
				Err: errors.Join(errors.New("dial tcp s3cret.internal:5432"), saga.ErrStore)}
			for name, err := range map[string]error{"full": full, "wrapped": fmt.Errorf("s3cret: %w", full), "bare": row.kind} {
				got := serve(t, answering(err)).post(t, theKey, theOrder)
				assert.Equal(t, row.status, got.status, name)
				assert.Equal(t, row.slug, got.slug(t), name)
				want := ""
				switch {
				case row.retryAfter && name == "bare":
					want = "1"
				case row.retryAfter:
					want = "7" // whole seconds, and never too early
				}
				assert.Equal(t, want, got.header.Get("Retry-After"), name)
				assert.False(t, got.replayed(), name)
				assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
				assert.NotContains(t, got.body, "s3cret", name)
				assert.NotContains(t, strings.Join(got.header.Values("Link"), ""), "s3cret", name)
			}
		})
	}
}

func TestErrorsThatAreNoRunsErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		slug   string
	}{
		"anything":                    {errors.New("s3cret"), 500, "internal"},
		"a nil *saga.Error":           {(*saga.Error)(nil), 500, "internal"},
		"a *saga.Error without kind":  {&saga.Error{Err: errors.New("s3cret")}, 500, "internal"},
		"the context's deadline":      {context.DeadlineExceeded, 503, "unavailable"},
		"the context's cancellation":  {context.Canceled, 503, "unavailable"},
		"a refusal of a Runner's own": {sagahttp.Status(http.StatusForbidden, errors.New("s3cret")), 403, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			got := serve(t, answering(tc.err)).post(t, theKey, theOrder)
			assert.Equal(t, tc.status, got.status)
			assert.Equal(t, tc.slug, got.slug(t))
			assert.NotContains(t, got.body, "s3cret")
		})
	}
}

// A step's error may wrap anything; on a replay it wraps nothing. The first answer must be no other than the second.
func TestWhatAFailureWrapsDoesNotCount(t *testing.T) {
	err := &saga.Error{Kind: saga.ErrFailed, Key: saga.Key{ID: "1"}, Err: sagahttp.Status(http.StatusTeapot, saga.ErrInProgress)}
	got := serve(t, answering(err)).post(t, theKey, theOrder)
	assert.Equal(t, http.StatusUnprocessableEntity, got.status)
	assert.Equal(t, "failed", got.slug(t))
}

func TestTheRetryAfterOfARunInProgressCanBeBounded(t *testing.T) {
	for kind, want := range map[error]string{saga.ErrInProgress: "3", saga.ErrInterrupted: "30"} {
		err := &saga.Error{Kind: kind, RetryAfter: 30 * time.Second}
		got := serve(t, answering(err, sagahttp.WithRetryAfter(3*time.Second))).post(t, theKey, theOrder)
		assert.Equal(t, want, got.header.Get("Retry-After"), kind)
	}
}

func TestAFailureIsAnsweredByItsCode(t *testing.T) {
	failed := func(code string) error {
		return &saga.Error{Kind: saga.ErrFailed, Code: code, Err: errors.New("the account is overdrawn")}
	}
	opts := []sagahttp.Option{
		sagahttp.WithFailure("card_declined", sagahttp.Failure{Status: http.StatusPaymentRequired, Title: "The card was declined", Type: "https://api.example.com/declined"}),
		sagahttp.WithFailures(map[string]int{"out_of_stock": http.StatusConflict}),
	}
	for code, want := range map[string]sagahttp.Problem{
		"card_declined": {Status: 402, Title: "The card was declined", Type: "https://api.example.com/declined"},
		"out_of_stock":  {Status: 409, Title: "The operation has failed", Type: sagahttp.DefaultTypes + "failed"},
		"other":         {Status: 422, Title: "The operation has failed", Type: sagahttp.DefaultTypes + "failed"},
		"":              {Status: 422, Title: "The operation has failed", Type: sagahttp.DefaultTypes + "failed"},
	} {
		got := serve(t, answering(failed(code), opts...)).post(t, theKey, theOrder)
		p := got.problem(t)
		assert.Equal(t, code, p.Code)
		assert.Equal(t, want.Status, got.status, code)
		assert.Equal(t, want.Title, p.Title, code)
		assert.Equal(t, want.Type, p.Type, code)
		assert.NotContains(t, got.body, "overdrawn")
		assert.Empty(t, got.header.Get("Retry-After"), "a failure is final")

		told := serve(t, answering(failed(code), append(opts, sagahttp.WithMessages())...)).post(t, theKey, theOrder)
		assert.Equal(t, "the account is overdrawn", told.problem(t).Detail)
	}
}

func TestMessagesAreShownOfFailuresAlone(t *testing.T) {
	for _, row := range table {
		if row.slug == "failed" {
			continue
		}
		err := &saga.Error{Kind: row.kind, Err: errors.New("s3cret")}
		assert.NotContains(t, serve(t, answering(err, sagahttp.WithMessages())).post(t, theKey, theOrder).body, "s3cret", row.slug)
	}
}

func TestTypesCanBeOnesOwn(t *testing.T) {
	got := serve(t, answering(saga.ErrBlocked, sagahttp.WithTypes("https://api.example.com/problems/"))).post(t, theKey, theOrder)
	assert.Equal(t, "https://api.example.com/problems/blocked", got.problem(t).Type)
}

func TestTheLogKnowsWhatTheClientIsNotTold(t *testing.T) {
	for _, row := range table {
		out := &logged{}
		log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), out, zap.InfoLevel))
		err := &saga.Error{Kind: row.kind, Key: saga.Key{Tenant: "a", Operation: "checkout", ID: theKey}, Err: errors.New("the cause")}
		got := serve(t, answering(err, sagahttp.WithLogger(log))).post(t, theKey, theOrder)
		if row.status < 500 {
			assert.Empty(t, out.text(), row.slug)
			continue
		}
		level := `"level":"error"`
		if row.status == http.StatusServiceUnavailable {
			level = `"level":"warn"`
		}
		for _, want := range []string{level, "the cause", got.problem(t).Instance, "a#checkout#order-001"} {
			assert.Contains(t, out.text(), want, row.slug)
		}
		assert.NotContains(t, out.text(), "1200", "never a payload")
	}
}

// docs/http.md has a heading for every type of problem, since that is where the types lead, and names its status.
func TestEveryProblemIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### ([a-z-]+)\n\n(\d{3})`).FindAllStringSubmatch(string(page), -1) {
		headings[m[1]+" "+m[2]] = true
	}
	assert.NotEmpty(t, headings)
	for slug, status := range sagahttp.Slugs() {
		name := fmt.Sprintf("%s %d", slug, status)
		assert.True(t, headings[name], "docs/http.md does not explain %s", name)
		delete(headings, name)
	}
	assert.Empty(t, headings, "docs/http.md explains what does not exist")
}

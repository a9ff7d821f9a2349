package saga_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// dynamoFaults are the ways in which DynamoDB refuses or fails, as the service documents them.
var dynamoFaults = map[string]*dynamotest.Fault{
	"throttled":           dynamotest.Throttle(),
	"internal error":      dynamotest.FailBefore(),
	"table is missing":    dynamotest.Refuse(http.StatusBadRequest, "ResourceNotFoundException", "Requested resource not found"),
	"credentials refused": dynamotest.Refuse(http.StatusBadRequest, "UnrecognizedClientException", "The security token included in the request is invalid."),
	"not authorised":      dynamotest.Refuse(http.StatusBadRequest, "AccessDeniedException", "User is not authorized"),
	"clock skew":          dynamotest.Refuse(http.StatusBadRequest, "InvalidSignatureException", "Signature expired"),
	"no answer in time":   {Unsent: true, Delay: time.Minute, Drop: true},
}

// hurry is the SDK's HTTP client, whose attempts have little time while it is on.
type hurry struct {
	on             atomic.Bool
	patient, hasty http.Client
}

func newHurry(t *testing.T) *hurry {
	t.Helper()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &hurry{patient: http.Client{Transport: transport}, hasty: http.Client{Transport: transport, Timeout: 30 * time.Millisecond}}
}

func (h *hurry) Do(r *http.Request) (*http.Response, error) {
	if h.on.Load() {
		return h.hasty.Do(r)
	}
	return h.patient.Do(r)
}

// While the table can't be written, nothing runs; when it goes away in the middle, the run that can't record ends as
// interrupted, and the same key goes on once the table is back.
func TestFaultsOfDynamoDBAreErrorsOfTheRun(t *testing.T) {
	t.Parallel()
	for name, fault := range dynamoFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := dynamotest.Start(t, true)
			client, table := dynamoTable(t, proxy.URL)
			hurry := newHurry(t)
			once := dynamotest.Client(t, proxy.URL, func(o *dynamodb.Options) { o.Retryer, o.HTTPClient = aws.NopRetryer{}, hurry })
			breaks := func(picks func(dynamotest.Request) bool) {
				hurry.on.Store(fault.Delay > 0)
				proxy.Break(func(r dynamotest.Request) *dynamotest.Fault {
					if picks(r) {
						return fault
					}
					return nil
				})
			}
			mends := func() { hurry.on.Store(false); proxy.Break(nil) }
			store, err := dynamostore.New(once, table)
			require.NoError(t, err)
			calls := map[string]int{}
			step := func(name string) *steps.Step[order, steps.None] {
				return steps.Do(name, func(context.Context, *orderRun) error {
					calls[name]++
					if name == "two" && calls[name] == 1 {
						breaks(dynamotest.Request.Write)
					}
					return nil
				})
			}
			o := newSaga(t, saga.Define("faults", saga.NoResult, step("one"), step("two"), step("three")), store)

			breaks(func(dynamotest.Request) bool { return true })
			_, err = o.Run(t.Context(), theKey, theOrder)
			sagaError(t, err, saga.ErrStore)
			require.Empty(t, calls, "the store can't be reached, so nothing runs")

			mends()
			_, err = o.Run(t.Context(), theKey, theOrder)
			interrupted := sagaError(t, err, saga.ErrInterrupted)
			require.ErrorIs(t, interrupted, saga.ErrStore)
			require.Equal(t, map[string]int{"one": 1, "two": 1}, calls)

			mends()
			healthy, err := dynamostore.New(client, table)
			require.NoError(t, err)
			rec := recordOf(t, healthy, theKey, "faults")
			require.Equal(t, state.StatusInProgress, rec.Status, "it could not be laid down; its lease lapses")
			require.NoError(t, forgetLease(t.Context(), healthy, rec))
			_, err = newSaga(t, saga.Define("faults", saga.NoResult, step("one"), step("two"), step("three")), healthy).Run(t.Context(), theKey, theOrder)
			require.NoError(t, err)
			require.Equal(t, map[string]int{"one": 1, "two": 2, "three": 1}, calls)
		})
	}
}

// DynamoDB refuses an item over 400 KB: before a run that is ErrTooLarge, and nothing runs; in the middle, the step is done
// without its result, which is what did not fit.
func TestAnItemOverDynamoDBsLimitIsTooLarge(t *testing.T) {
	t.Parallel()
	full := dynamotest.Refuse(http.StatusBadRequest, "ValidationException", "Item size to update has exceeded the maximum allowed size")
	proxy := dynamotest.Start(t, true)
	client, table := dynamoTable(t, proxy.URL)
	store, err := dynamostore.New(client, table)
	require.NoError(t, err)
	p := new(participant)
	o := newSaga(t, chain{p: p, after: at("s2", func(context.Context, *orderRun) error {
		proxy.BreakOnce(full, dynamotest.Request.Write)
		return nil
	})}.of(3), store)

	proxy.Break(func(dynamotest.Request) *dynamotest.Fault { return full })
	_, err = o.Run(t.Context(), theKey, theOrder)
	sagaError(t, err, saga.ErrTooLarge)
	require.Empty(t, p.seen())

	proxy.Break(nil)
	_, err = o.Run(t.Context(), theKey, theOrder)
	failed := sagaError(t, err, saga.ErrFailed)
	require.ErrorIs(t, failed, saga.ErrTooLarge)
	require.Equal(t, "s2", failed.Step)
	require.Equal(t, []string{"s1", "s2", "undo s2 unknown", "undo s1 known"}, p.seen())
	_, err = o.Run(t.Context(), theKey, theOrder)
	sagaError(t, err, saga.ErrFailed)
}

// forgetLease lets a dead holder's lease lapse at once.
func forgetLease(ctx context.Context, store state.Store, rec *state.Record) error {
	return store.Commit(ctx, &state.Change{
		Key: rec.Key, IfOwner: rec.Owner, IfRevision: rec.Revision, WriteID: "lapse", Owner: rec.Owner, Runs: rec.Runs, Status: rec.Status,
		CurrentStep: rec.CurrentStep, LeaseUntil: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	})
}

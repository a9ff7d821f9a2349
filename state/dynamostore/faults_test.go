package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
)

// operation is a call of the store that writes. prepare makes what it works on; call makes the call, and returns the
// record as it should be afterwards.
type operation struct {
	name    string
	prepare func(t *testing.T, s *dynamostore.Store) *state.Record
	call    func(ctx context.Context, s *dynamostore.Store, r *state.Record) error
	after   func(r *state.Record)
}

// own is what a holder makes of the answers of Create and Commit: what carries its own write ID is its own write.
func own(existing *state.Record, err error, writeID string) error {
	var refused *state.ConflictError
	if errors.As(err, &refused) && refused.Current != nil && refused.Current.WriteID == writeID {
		return nil
	}
	if err == nil && existing != nil && existing.WriteID != writeID {
		return fmt.Errorf("the key is taken by %s", existing.WriteID)
	}
	return err
}

// emitting is a run that has emitted two messages in its first step, the second with a large body.
func emitting(t *testing.T, s *dynamostore.Store) *state.Record {
	t.Helper()
	r := newCostlyRun(2, 100, 60)
	r.Retention = time.Hour
	r.create(t, s)
	ch := r.step(0)
	ch.Messages = twoMessages(r.Record)
	r.commit(t, s, ch)
	return r.Record
}

func twoMessages(r *state.Record) []outbox.Message {
	return []outbox.Message{
		{ID: r.Key + "/" + r.Plan[0] + "/0", Topic: "t", Body: []byte("small"), ContentType: "text/plain", Time: r.CreatedAt},
		{ID: r.Key + "/" + r.Plan[0] + "/1", Topic: "t", Body: []byte(jsonOf(2000)), ContentType: "application/json", Time: r.CreatedAt},
	}
}

// claimed is such a run that has ended, its messages under a relay's claim.
func claimedAndEnded(t *testing.T, s *dynamostore.Store) *state.Record {
	t.Helper()
	r := &costlyRun{emitting(t, s), string(jsonOf(60))}
	ch := r.step(1)
	ch.ExpiresAt = time.Time{}
	ch.Claim = &state.Claim{Token: "token", Until: state.Milli(time.Now().Add(time.Minute))}
	r.commit(t, s, ch)
	return r.Record
}

func claimedWhileRunning(t *testing.T, s *dynamostore.Store) *state.Record {
	t.Helper()
	r := emitting(t, s)
	batches, err := s.Claim(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, batches, 1)
	r.Outbox.Token = batches[0].Token
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	r.Outbox.ClaimedUntil = got.Outbox.ClaimedUntil
	require.Equal(t, r, got)
	return r
}

func parked(t *testing.T, s *dynamostore.Store) *state.Record {
	t.Helper()
	r := claimedAndEnded(t, s)
	b := batchOf(r)
	require.NoError(t, s.Sent(t.Context(), b, []string{b.Messages[0].ID}))
	require.NoError(t, s.Park(t.Context(), b, b.Messages[1].ID, "no such queue"))
	require.NoError(t, r.Outbox.Sent(b, []string{b.Messages[0].ID}))
	require.NoError(t, r.Outbox.Park(b, b.Messages[1].ID, "no such queue"))
	return r
}

func batchOf(r *state.Record) outbox.Batch {
	return outbox.Batch{RunKey: r.Key, Token: r.Outbox.Token, Messages: r.Outbox.Sendable()}
}

func all(b outbox.Batch) (ids []string) {
	for _, m := range b.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func operations() []operation {
	return []operation{
		{"create", func(*testing.T, *dynamostore.Store) *state.Record { return newCostlyRun(2, 5000, 60).Record },
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				existing, err := s.Create(ctx, r)
				return own(existing, err, r.WriteID)
			}, func(*state.Record) {}},
		{"commit", emitting,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				ch := (&costlyRun{r, string(jsonOf(3000))}).step(1)
				ch.ExpiresAt = time.Time{}
				return own(nil, s.Commit(ctx, ch), ch.WriteID)
			}, func(r *state.Record) {
				ch := (&costlyRun{r, string(jsonOf(3000))}).step(1)
				ch.ExpiresAt = time.Time{}
				_ = ch.Apply(r)
			}},
		{"cancel", emitting,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.RequestCancel(ctx, r.Key, state.CancelRequest{Reason: "why", Actor: "who", At: r.CreatedAt})
			}, func(r *state.Record) {
				r.Cancel = &state.CancelRequest{Reason: "why", Actor: "who", At: r.CreatedAt}
			}},
		{"sent and ended", claimedAndEnded,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Sent(ctx, batchOf(r), all(batchOf(r)))
			}, func(r *state.Record) { _ = r.Outbox.Sent(batchOf(r), all(batchOf(r))); r.ExpiresAt = anExpiry }},
		{"sent", claimedWhileRunning,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Sent(ctx, batchOf(r), all(batchOf(r)))
			}, func(r *state.Record) { _ = r.Outbox.Sent(batchOf(r), all(batchOf(r))) }},
		{"sent in part", claimedWhileRunning,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Sent(ctx, batchOf(r), all(batchOf(r))[:1])
			}, func(r *state.Record) { _ = r.Outbox.Sent(batchOf(r), all(batchOf(r))[:1]) }},
		{"released", claimedWhileRunning,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Sent(ctx, batchOf(r), nil)
			}, func(r *state.Record) { _ = r.Outbox.Sent(batchOf(r), nil) }},
		{"park", claimedAndEnded,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Park(ctx, batchOf(r), all(batchOf(r))[0], "refused")
			}, func(r *state.Record) { _ = r.Outbox.Park(batchOf(r), all(batchOf(r))[0], "refused") }},
		{"unpark", parked,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Unpark(state.ActorContext(ctx, "ops"), r.Outbox.Messages[0].ID, true, "the queue is there now")
			}, func(r *state.Record) {
				r.Audit = append(r.Audit, state.UnparkAudit("ops", r.Outbox.Messages[0].ID, true, "the queue is there now", anExpiry))
				_ = r.Outbox.Unpark(r.Outbox.Messages[0].ID, true)
			}},
		{"unpark and drop", parked,
			func(ctx context.Context, s *dynamostore.Store, r *state.Record) error {
				return s.Unpark(state.ActorContext(ctx, "ops"), r.Outbox.Messages[0].ID, false, "nobody wants it")
			}, func(r *state.Record) {
				r.Audit = append(r.Audit, state.UnparkAudit("ops", r.Outbox.Messages[0].ID, false, "nobody wants it", anExpiry))
				_ = r.Outbox.Unpark(r.Outbox.Messages[0].ID, false)
				r.ExpiresAt = anExpiry
			}},
	}
}

// anExpiry stands for a time that the store has taken from its clock.
var anExpiry = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// same compares records, any time of the store's own with any other.
func same(t *testing.T, want, got *state.Record) {
	t.Helper()
	got = got.Clone()
	if !want.ExpiresAt.IsZero() && !got.ExpiresAt.IsZero() {
		got.ExpiresAt = want.ExpiresAt
	}
	for i := range got.Audit {
		if i < len(want.Audit) {
			got.Audit[i].At = want.Audit[i].At
		}
	}
	if len(want.Outbox.Messages) == 0 {
		want.Outbox.Messages = nil
	}
	assert.Equal(t, want, got)
}

// Each request of each operation goes wrong in each way, once, while the SDK tries again by itself. What is stored is as if
// nothing had happened, and the caller is told so.
func TestFaultsThatTheSDKRetriesLeaveNoTrace(t *testing.T) {
	faults := map[string]*dynamotest.Fault{
		"answer lost": dynamotest.DropAnswer(), "500 after": dynamotest.FailAfter(), "500 before": dynamotest.FailBefore(),
		"throttled": dynamotest.Throttle(), "transaction": dynamotest.TransactionConflict(), "slow": dynamotest.Slow(20 * time.Millisecond),
	}
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		s := newStore(t, p)
		for _, op := range operations() {
			t.Run(op.name, func(t *testing.T) {
				for name, fault := range faults {
					t.Run(name, func(t *testing.T) {
						for n := 1; ; n++ {
							if !faultAt(t, p, s, op, fault, n) {
								require.Greater(t, n, 1, "no request was broken")
								return
							}
						}
					})
				}
			})
		}
	})
}

// faultAt breaks request number n of the operation, and reports whether there was one.
func faultAt(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, op operation, fault *dynamotest.Fault, n int) bool {
	t.Helper()
	r := op.prepare(t, s)
	count := 0
	broken := p.BreakOnce(fault, func(q dynamotest.Request) bool {
		if fault.Answer != nil && fault.Answer.Code == "TransactionConflictException" && !q.Write() {
			return false
		}
		count++
		return count == n
	})
	err := op.call(t.Context(), s, r)
	p.Break(nil)
	require.NoError(t, err, "request %d", n)
	op.after(r)
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	same(t, r, got)
	entries, err := dynamostore.OpenEntries(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, r.Open(), entries == 1, "index entries: %d", entries)
	require.NoError(t, s.Delete(t.Context(), r.Key))
	return broken()
}

// The same without any retry: after the error, the caller makes the same call again and all is well, or it is told that
// its claim is lost, which it is.
func TestFaultsThatReachTheCallerAreHealedByCallingAgain(t *testing.T) {
	faults := map[string]*dynamotest.Fault{
		"answer lost": dynamotest.DropAnswer(), "500 after": dynamotest.FailAfter(), "500 before": dynamotest.FailBefore(), "throttled": dynamotest.Throttle(),
	}
	eachServer(t, func(t *testing.T, p *dynamotest.Proxy) {
		client := dynamotest.Client(t, p.URL, once)
		s, err := dynamostore.New(client, newTable(t, client))
		require.NoError(t, err)
		for _, op := range operations() {
			for name, fault := range faults {
				t.Run(op.name+"/"+name, func(t *testing.T) {
					for n := 1; ; n++ {
						if !failAt(t, p, s, op, fault, n) {
							require.Greater(t, n, 1, "no request was broken")
							return
						}
					}
				})
			}
		}
	})
}

func failAt(t *testing.T, p *dynamotest.Proxy, s *dynamostore.Store, op operation, fault *dynamotest.Fault, n int) bool {
	t.Helper()
	r := op.prepare(t, s)
	count := 0
	broken := p.BreakOnce(fault, func(dynamotest.Request) bool { count++; return count == n })
	err := op.call(t.Context(), s, r)
	p.Break(nil)
	if !broken() {
		require.NoError(t, err)
		require.NoError(t, s.Delete(t.Context(), r.Key))
		return false
	}
	require.Error(t, err, "request %d", n)
	for _, definite := range []error{state.ErrConflict, state.ErrTooLarge, state.ErrNotFound, state.ErrNotAllowed, state.ErrUnsupported, state.ErrCorrupt, outbox.ErrClaimLost, outbox.ErrNotParked} {
		require.NotErrorIs(t, err, definite, "an answer in doubt is no refusal")
	}
	if err = op.call(t.Context(), s, r); err != nil && !errors.Is(err, outbox.ErrClaimLost) && !errors.Is(err, outbox.ErrNotParked) {
		require.NoError(t, err, "request %d", n)
	}
	_, err = s.Claim(t.Context(), 100, time.Minute) // closes what a relay has left open
	require.NoError(t, err)
	op.after(r)
	got, err := s.Get(t.Context(), r.Key)
	require.NoError(t, err)
	if len(r.Outbox.Messages) > 0 {
		r.Outbox.Token, r.Outbox.ClaimedUntil = got.Outbox.Token, got.Outbox.ClaimedUntil // of the Claim above
	}
	same(t, r, got)
	require.NoError(t, s.Delete(t.Context(), r.Key))
	return true
}

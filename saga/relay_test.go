package saga_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// published collects what a relay publishes.
type published struct {
	mu   sync.Mutex
	msgs []outbox.Message
}

func (p *published) Publish(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.msgs = append(p.msgs, msgs...)
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		results[i].ID = m.ID
	}
	return results, nil
}

func (p *published) ids() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// A loop that has sent the messages of a step while the next one ran is not repeated by the inline relay.
func TestTheInlineRelayDoesNotRepeatALoop(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store, out := open(), &published{}
		relay, err := outbox.NewRelay(store, out, outbox.WithClock(clk))
		require.NoError(t, err)
		first := steps.Do("first", func(_ context.Context, r *steps.Run[order]) error {
			r.Emit(outbox.Message{Topic: "t", Body: 1})
			return nil
		})
		second := steps.Do("second", func(ctx context.Context, r *steps.Run[order]) error {
			require.NoError(t, relay.Drain(ctx))
			clk.Advance(2 * time.Second)
			r.Emit(outbox.Message{Topic: "t", Body: 2})
			return nil
		})
		o := newSaga(t, saga.Define("emits", saga.NoResult, first, second), store, saga.WithClock(clk), saga.WithRelay(relay))
		_, err = o.Run(t.Context(), theKey, order{})
		require.NoError(t, err)
		key := theKey.Tenant + "#emits#" + theKey.ID
		require.Equal(t, []string{key + "/first/0", key + "/second/0"}, out.ids())
		rec, err := o.Get(t.Context(), theKey)
		require.NoError(t, err)
		require.Empty(t, rec.Outbox.Messages)
		require.False(t, rec.ExpiresAt.IsZero())
	})
}

// deafRelay is a relay whose publisher does not mind its context, or worse.
type deafRelay func()

func (deafRelay) Lease() time.Duration { return 20 * time.Millisecond }

func (f deafRelay) Deliver(context.Context, outbox.Batch, time.Duration) error {
	f()
	return nil
}

// A run that has ended is answered whatever the relay does, and its messages stay due.
func TestARelayThatNeverReturnsDoesNotHoldTheCaller(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for says, relay := range map[string]deafRelay{
		"no longer waited for": func() { <-release },
		"panicked: oh":         func() { panic("oh") },
		"runtime.Goexit":       runtime.Goexit,
	} {
		t.Run(says, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			store := memory.New()
			emits := steps.Do("emits", func(_ context.Context, r *steps.Run[order]) error {
				r.Emit(outbox.Message{Topic: "t", Body: 1})
				return nil
			})
			o := newSaga(t, saga.Define("emits", saga.NoResult, emits), store, saga.WithRelay(relay), saga.WithLogger(zap.New(core)))
			_, err := o.Run(t.Context(), theKey, order{})
			require.NoError(t, err)
			said := logs.FilterMessage("relay_failed").All()
			require.Len(t, said, 1)
			require.ErrorContains(t, loggedError(t, said[0]), says)
			rec, err := o.Get(t.Context(), theKey)
			require.NoError(t, err)
			require.Equal(t, state.StatusCompleted, rec.Status)
			require.Len(t, rec.Outbox.Messages, 1)
		})
	}
}

func loggedError(t *testing.T, entry observer.LoggedEntry) error {
	t.Helper()
	for _, f := range entry.Context {
		if err, ok := f.Interface.(error); ok {
			return err
		}
	}
	t.Fatalf("%s has no error", entry.Message)
	return nil
}

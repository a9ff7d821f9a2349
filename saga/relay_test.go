package saga_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
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

package saga_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// A loop has claimed the messages of a run when it is taken up, and has sent them before it is closed: the closing write
// may claim what is new, whatever the holder has seen before.
func TestAClaimIsReleasedDuringARun(t *testing.T) {
	eachStoreAt(t, func(t *testing.T, clk *clock.Fake, open func() state.Store) {
		store, broker := open(), &published{}
		relay, err := outbox.NewRelay(store, broker, outbox.WithClock(clk))
		require.NoError(t, err)
		emit := func(_ context.Context, r *orderRun) error {
			r.Emit(outbox.Message{Topic: "t", Body: 1})
			return nil
		}
		var claimed []outbox.Batch
		d := saga.Define("emits", saga.NoResult[order], steps.Do("a", emit),
			steps.Do("b", func(ctx context.Context, r *orderRun) error {
				if claimed == nil {
					return errors.New("not now")
				}
				clk.Advance(2 * time.Second)
				if err := store.Sent(ctx, claimed[0], []string{claimed[0].Messages[0].ID}); err != nil {
					return err
				}
				return emit(ctx, r)
			}).Retry(once))
		o := newSaga(t, d, store, saga.WithClock(clk), saga.WithRelay(relay))
		_, err = o.Run(t.Context(), theKey, theOrder)
		require.ErrorIs(t, err, saga.ErrInterrupted)
		claimed, err = store.Claim(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, claimed, 1)

		_, err = o.Run(t.Context(), theKey, theOrder)
		require.NoError(t, err, "it is recorded as completed")
		require.Equal(t, []string{"t#emits#1/b/0"}, broker.ids(), "and what it has claimed is sent")
		rec, err := o.Get(t.Context(), theKey)
		require.NoError(t, err)
		require.Empty(t, rec.Outbox.Messages)
	})
}

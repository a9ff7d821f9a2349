package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

func TestNewRelayRefusesWhatCannotWork(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		_, err := outbox.NewRelay(nil, b)
		require.Error(t, err)
		_, err = outbox.NewRelay(store, nil)
		require.Error(t, err)
		for what, o := range map[string]outbox.Option{
			"logger": outbox.WithLogger(nil), "clock": outbox.WithClock(nil), "lease": outbox.WithLease(time.Millisecond),
			"batch": outbox.WithBatch(0), "workers": outbox.WithWorkers(0), "refusals": outbox.WithMaxRefusals(0),
			"polling": outbox.WithPoll(time.Second, time.Millisecond), "backing off": outbox.WithBackoff(0, time.Second),
			"grace": outbox.WithGrace(-1), "inline": outbox.WithInlineTimeout(0),
		} {
			_, err := outbox.NewRelay(store, b, o)
			require.ErrorContains(t, err, what)
		}
	})
}

func TestDrainSendsInOrderAndLetsTheRecordExpire(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		want := plain(t, "a", 5)
		key := seed(t, store, "a", want...)
		rec, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.True(t, rec.ExpiresAt.IsZero(), "unsent messages keep a record")

		r := relay(t, store, b)
		require.NoError(t, r.Drain(t.Context()))

		got := b.got()
		require.Equal(t, ids(want), ids(got))
		for i := range got {
			assert.Equal(t, key, got[i].Key, "the run's key stands in for the ordering key")
			assert.Equal(t, want[i].Bytes(), got[i].Bytes())
			assert.True(t, want[i].Time.Equal(got[i].Time), "the store keeps the message's time")
		}
		rec, err = store.Get(t.Context(), key)
		require.NoError(t, err)
		assert.Empty(t, rec.Outbox.Messages)
		assert.False(t, rec.ExpiresAt.IsZero())
		s := r.Stats()
		assert.EqualValues(t, 5, s.Claimed)
		assert.EqualValues(t, 5, s.Sent)
		assert.Zero(t, s.InHand)
		assert.Zero(t, s.Lag)
		require.NoError(t, r.Drain(t.Context()), "nothing due is no error")
		assert.Len(t, b.got(), 5)
	})
}

func TestRefusedMessageParksWithItsSuccessorsAndNothingElse(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a, c := plain(t, "a", 4), plain(t, "c", 3)
		keyA := seed(t, store, "a", a...)
		keyC := seed(t, store, "c", c...)
		b.verdict = refuse(a[1].ID)
		r := relay(t, store, b, outbox.WithMaxRefusals(3))

		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a[:1]), of(b.got(), "a"))
		assert.Equal(t, ids(c), of(b.got(), "c"))
		assert.Equal(t, []string{a[1].ID}, parked(t, store))
		assert.Equal(t, ids(a[1:]), unsent(t, store, keyA))
		assert.Empty(t, unsent(t, store, keyC))
		rec, err := store.Get(t.Context(), keyA)
		require.NoError(t, err)
		assert.Equal(t, "malformed", rec.Outbox.Messages[0].Parked)
		s := r.Stats()
		assert.EqualValues(t, 3, s.Refused)
		assert.EqualValues(t, 1, s.Parked)
		assert.Zero(t, s.Lag, "what is parked is not due")

		b.set(func(b *broker) { b.verdict = nil })
		require.NoError(t, r.Drain(t.Context()))
		assert.Len(t, of(b.got(), "a"), 1, "parked messages stay where they are")

		require.NoError(t, store.Unpark(state.ActorContext(t.Context(), "kei"), a[1].ID, true, "fixed"))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a), of(b.got(), "a"))
		assert.Len(t, b.got(), 7, "each once")
		rec, err = store.Get(t.Context(), keyA)
		require.NoError(t, err)
		require.Len(t, rec.Audit, 1)
		assert.Equal(t, "kei", rec.Audit[0].Actor)
	})
}

func TestDroppedMessageFreesItsSuccessors(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 3)
		key := seed(t, store, "a", a...)
		b.verdict = refuse(a[0].ID)
		r := relay(t, store, b, outbox.WithMaxRefusals(1))
		require.NoError(t, r.Drain(t.Context()))
		require.Equal(t, []string{a[0].ID}, parked(t, store))
		assert.EqualValues(t, 1, r.Stats().Refused, "parked at the first refusal")

		require.NoError(t, store.Unpark(t.Context(), a[0].ID, false, "nobody wants it"))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a[1:]), of(b.got(), "a"))
		assert.Empty(t, unsent(t, store, key))
	})
}

func TestRefusalsBelowTheLimitAreTriedAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 3)
		seed(t, store, "a", a...)
		left := 2
		b.verdict = func(m outbox.Message) *outbox.Result {
			if m.ID == a[1].ID && left > 0 {
				left--
				return &outbox.Result{Err: errors.New("access denied"), Refused: true}
			}
			return nil
		}
		r := relay(t, store, b, outbox.WithMaxRefusals(3))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a), ids(b.got()))
		assert.Empty(t, parked(t, store))
		assert.EqualValues(t, 2, r.Stats().Refused)
	})
}

func TestOrderHoldsAcrossTopicsAndKeysOfARun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := []outbox.Message{
			msg(t, "a", 0, outbox.Message{Topic: "x", Key: "1"}),
			msg(t, "a", 1, outbox.Message{Topic: "y", Key: "1"}),
			msg(t, "a", 2, outbox.Message{Topic: "y", Key: "2"}),
			msg(t, "a", 3, outbox.Message{Topic: "x", Key: "1"}),
		}
		seed(t, store, "a", a...)
		b.verdict = refuse(a[1].ID)
		r := relay(t, store, b, outbox.WithMaxRefusals(2))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a[:1]), ids(b.got()), "a message with another key doesn't overtake the refused one")
		b.set(func(b *broker) { b.verdict = nil })
		require.NoError(t, store.Unpark(t.Context(), a[1].ID, true, ""))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a), ids(b.got()))
	})
}

func TestOutageCostsNoAttempt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 3)
		seed(t, store, "a", a...)
		failures := 7
		b.outage = func() error {
			if failures > 0 {
				failures--
				return errDown
			}
			return nil
		}
		r := relay(t, store, b, outbox.WithMaxRefusals(1))

		for range 2 {
			err := r.Drain(t.Context())
			require.ErrorIs(t, err, outbox.ErrOutage)
			require.ErrorIs(t, err, errDown)
			assert.True(t, r.Stats().Down)
		}
		require.NoError(t, r.Drain(t.Context()), "what a failed Drain had claimed is due at once")
		assert.Equal(t, ids(a), ids(b.got()))
		assert.Empty(t, parked(t, store))
		s := r.Stats()
		assert.EqualValues(t, 7, s.Outages)
		assert.False(t, s.Down)
	})
}

func TestRunWaitsForTheBroker(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		var downNow atomic.Bool
		downNow.Store(true)
		b.outage = func() error {
			if downNow.Load() {
				return errDown
			}
			return nil
		}
		for i := range 20 {
			seed(t, store, fmt.Sprint("r", i), plain(t, fmt.Sprint("r", i), 2)...)
		}
		r := relay(t, store, b, outbox.WithLease(time.Minute))
		stop := run(t, r)
		require.Eventually(t, func() bool { return r.Stats().Outages > 5 }, 10*time.Second, time.Millisecond)
		s := r.Stats()
		assert.True(t, s.Down)
		assert.Positive(t, s.Lag)
		assert.Positive(t, s.InHand)
		downNow.Store(false)
		require.Eventually(t, func() bool { return len(b.got()) == 40 }, 10*time.Second, time.Millisecond)
		stop()
		assert.Len(t, b.got(), 40, "each once: the claims were held through the outage")
		assert.Zero(t, r.Stats().InHand)
	})
}

func TestOneFailingRunDoesNotHoldUpOthers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 2)
		seed(t, store, "a", a...)
		var fixed atomic.Bool
		b.verdict = func(m outbox.Message) *outbox.Result {
			if strings.Contains(m.ID, "#a/") && !fixed.Load() {
				return &outbox.Result{Err: errors.New("internal failure")}
			}
			return nil
		}
		r := relay(t, store, b, outbox.WithMaxRefusals(1), outbox.WithWorkers(1))
		run(t, r)
		for i := range 30 {
			seed(t, store, fmt.Sprint("r", i), plain(t, fmt.Sprint("r", i), 1)...)
		}
		require.Eventually(t, func() bool { return len(b.got()) == 30 }, 10*time.Second, time.Millisecond)
		assert.Empty(t, of(b.got(), "a"))
		assert.Empty(t, parked(t, store), "a failure that is no refusal never parks")
		fixed.Store(true)
		require.Eventually(t, func() bool { return len(of(b.got(), "a")) == 2 }, 10*time.Second, time.Millisecond)
	})
}

func TestDrainGivesUpOnARunThatKeepsFailing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a, c := plain(t, "a", 2), plain(t, "c", 2)
		keyA := seed(t, store, "a", a...)
		seed(t, store, "c", c...)
		b.verdict = func(m outbox.Message) *outbox.Result {
			if m.ID == a[0].ID {
				return &outbox.Result{Err: errors.New("internal failure")}
			}
			return nil
		}
		r := relay(t, store, b)
		err := r.Drain(t.Context())
		require.ErrorIs(t, err, outbox.ErrUnsent)
		require.ErrorContains(t, err, a[0].ID)
		assert.Equal(t, ids(c), ids(b.got()))
		assert.Equal(t, ids(a), unsent(t, store, keyA))
		b.set(func(b *broker) { b.verdict = nil })
		require.NoError(t, r.Drain(t.Context()), "it was given back")
		assert.Equal(t, ids(a), of(b.got(), "a"))
	})
}

type slowDown struct{}

func (slowDown) Error() string             { return "slow down" }
func (slowDown) RetryAfter() time.Duration { return 50 * time.Millisecond }

func TestRetryAfterIsObeyed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 1)
		seed(t, store, "a", a...)
		var first, second time.Time
		b.verdict = func(outbox.Message) *outbox.Result {
			if first.IsZero() {
				first = time.Now()
				return &outbox.Result{Err: fmt.Errorf("post: %w", slowDown{})}
			}
			second = time.Now()
			return nil
		}
		require.NoError(t, relay(t, store, b).Drain(t.Context()))
		assert.GreaterOrEqual(t, second.Sub(first), 50*time.Millisecond)
	})
}

// Two runs share an ordering key, and the first is refused: the second is held back in that call, and is neither blamed
// nor parked for it.
func TestHeldBackBehindAnotherRunIsNoFault(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := []outbox.Message{msg(t, "a", 0, outbox.Message{Key: "k"})}
		c := []outbox.Message{msg(t, "c", 0, outbox.Message{Key: "k"}), msg(t, "c", 1, outbox.Message{Key: "k"})}
		seed(t, store, "a", a...)
		seed(t, store, "c", c...)
		b.verdict = refuse(a[0].ID)
		r := relay(t, store, b, outbox.WithMaxRefusals(1))
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(c), ids(b.got()))
		assert.Equal(t, []string{a[0].ID}, parked(t, store))
		s := r.Stats()
		assert.EqualValues(t, 1, s.Refused)
		assert.Zero(t, s.Failed)
	})
}

func TestPublisherThatSaysNothingOfAMessage(t *testing.T) {
	for name, p := range map[string]outbox.PublisherFunc{
		"no result": func(context.Context, []outbox.Message) ([]outbox.Result, error) { return nil, nil },
		"held back behind nothing": func(_ context.Context, msgs []outbox.Message) (res []outbox.Result, _ error) {
			for _, m := range msgs {
				res = append(res, outbox.Result{ID: m.ID, Err: outbox.ErrHeldBack})
			}
			return res, nil
		},
		"refused without a reason": func(_ context.Context, msgs []outbox.Message) (res []outbox.Result, _ error) {
			for _, m := range msgs {
				res = append(res, outbox.Result{ID: m.ID, Refused: true})
			}
			return res, nil
		},
		"panic": func(context.Context, []outbox.Message) ([]outbox.Result, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			a := plain(t, "a", 1)
			key := seed(t, store, "a", a...)
			r := relay(t, store, p, outbox.WithMaxRefusals(2))
			err := r.Drain(t.Context())
			if name == "refused without a reason" {
				require.NoError(t, err)
				assert.Equal(t, ids(a), parked(t, store))
			} else {
				require.Error(t, err)
			}
			assert.Equal(t, ids(a), unsent(t, store, key), "not sent, so not removed")
			assert.Zero(t, r.Stats().Sent)
		})
	}
}

// A publisher that fails in the middle of a call may say what it is sure of; that is not sent again.
func TestResultsBesideAnErrorCount(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		a := plain(t, "a", 4)
		seed(t, store, "a", a...)
		failed := false
		p := outbox.PublisherFunc(func(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
			if !failed {
				failed = true
				res, err := b.Publish(ctx, msgs[:2])
				return res, errors.Join(err, errDown)
			}
			return b.Publish(ctx, msgs)
		})
		r := relay(t, store, p)
		require.NoError(t, r.Drain(t.Context()))
		assert.Equal(t, ids(a), ids(b.got()))
		assert.EqualValues(t, 4, r.Stats().Sent)
	})
}

func TestLargeBodiesManyMessagesAndUnicodeGoThrough(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		big := strings.Repeat("大", 100_000) // 300 KB
		bigMsg := msg(t, "big", 0, outbox.Message{Body: big, Attributes: map[string]string{"ключ": "値段 €"}})
		seed(t, store, "big", bigMsg)
		many := plain(t, "many", outbox.MaxMessages)
		seed(t, store, "many", many...)
		require.NoError(t, relay(t, store, b, outbox.WithBatch(7)).Drain(t.Context()))
		assert.Equal(t, ids(many), of(b.got(), "many"))
		got := b.got()
		require.Len(t, ids(got), 101)
		i := slices.IndexFunc(got, func(m outbox.Message) bool { return m.ID == bigMsg.ID })
		require.GreaterOrEqual(t, i, 0)
		assert.True(t, bytes.Equal(bigMsg.Bytes(), got[i].Bytes()))
		assert.Equal(t, bigMsg.Attributes, got[i].Attributes)
	})
}

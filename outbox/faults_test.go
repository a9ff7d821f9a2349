package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tsuzuki-go/tsuzuki/internal/clock"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

var errStore = errors.New("disk on fire")

// A relay whose claim took so long that the lease is over by its own clock sends nothing of it, whatever the store thinks.
func TestNothingIsSentOnceTheLeaseIsOver(t *testing.T) {
	clk := &clock.Fake{}
	store, b := memory.New(), &broker{}
	a := plain(t, "a", 2)
	seed(t, store, "a", a...)
	var claims atomic.Int32
	src := &faulty{Source: store, claim: func(really func() ([]outbox.Batch, error)) ([]outbox.Batch, error) {
		batches, err := really()
		if claims.Add(1) == 1 {
			clk.Advance(3 * time.Second) // the answer was slow
		}
		return batches, err
	}}
	r := relay(t, src, b, outbox.WithClock(clk), outbox.WithLease(2*time.Second))
	b.verdict = func(outbox.Message) *outbox.Result {
		assert.GreaterOrEqual(t, claims.Load(), int32(2), "sent under a claim made anew")
		return nil
	}
	require.NoError(t, r.Drain(t.Context()))
	assert.Equal(t, ids(a), ids(b.got()))
	assert.EqualValues(t, 1, r.Stats().LeasesSpent)
}

// A run with many ordering keys takes many calls. When the lease runs out on the way, the rest is claimed anew.
func TestLeaseIsRenewedByClaimingAnew(t *testing.T) {
	clk := &clock.Fake{}
	store, b := memory.New(memory.WithClock(clk)), &broker{}
	var a []outbox.Message
	for i := range 10 {
		a = append(a, msg(t, "a", i, outbox.Message{Key: fmt.Sprint(i)}))
	}
	seed(t, store, "a", a...)
	b.verdict = func(outbox.Message) *outbox.Result {
		clk.Advance(400 * time.Millisecond)
		return nil
	}
	r := relay(t, store, b, outbox.WithClock(clk), outbox.WithLease(2*time.Second))
	require.NoError(t, r.Drain(t.Context()))
	assert.Equal(t, ids(a), ids(b.got()), "each once, in order")
	s := r.Stats()
	assert.Positive(t, s.LeasesSpent)
	assert.Zero(t, s.ClaimsLost)
}

func TestCallUnderWayIsCutBeforeTheLeaseEnds(t *testing.T) {
	store := memory.New()
	seed(t, store, "a", plain(t, "a", 1)...)
	lease := 100 * time.Millisecond
	p := outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) ([]outbox.Result, error) {
		deadline, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.Less(t, time.Until(deadline), lease)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := relay(t, store, p, outbox.WithLease(lease))
	require.ErrorIs(t, r.Drain(t.Context()), outbox.ErrOutage, "a broker that does not answer is down")
	assert.Positive(t, r.Stats().Outages)
}

func TestRemovalIsTriedAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, store state.Store) {
				b := &broker{}
				a := plain(t, "a", 3)
				key := seed(t, store, "a", a...)
				failures := 2
				src := &faulty{Source: store, sent: func(_ outbox.Batch, _ []string, really func() error) error {
					if failures > 0 {
						failures--
						if applied { // the answer is lost
							_ = really()
						}
						return errStore
					}
					return really()
				}}
				r := relay(t, src, b)
				require.NoError(t, r.Drain(t.Context()))
				assert.Len(t, b.got(), 3, "each once")
				assert.Empty(t, unsent(t, store, key))
				s := r.Stats()
				assert.Zero(t, s.ClaimsLost, "a claim that the write itself released isn't lost")
				assert.Positive(t, s.SourceErrors)
			})
		})
	}
}

func TestParkingIsTriedAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, store state.Store) {
				b := &broker{}
				a := plain(t, "a", 3)
				seed(t, store, "a", a...)
				b.verdict = refuse(a[1].ID)
				failed := false
				src := &faulty{Source: store, park: func(really func() error) error {
					if !failed {
						failed = true
						if applied {
							_ = really()
						}
						return errStore
					}
					return really()
				}}
				r := relay(t, src, b, outbox.WithMaxRefusals(1))
				require.NoError(t, r.Drain(t.Context()))
				assert.Equal(t, ids(a[1:2]), parked(t, store))
				assert.Equal(t, ids(a[:1]), ids(b.got()))
			})
		})
	}
}

func TestLostClaimIsCountedAndSentAgainByTheOther(t *testing.T) {
	store, b := memory.New(), &broker{}
	a := plain(t, "a", 2)
	key := seed(t, store, "a", a...)
	stolen := false
	src := &faulty{Source: store, sent: func(b outbox.Batch, ids []string, really func() error) error {
		if !stolen {
			stolen = true
			return fmt.Errorf("run %s: %w", b.RunKey, outbox.ErrClaimLost)
		}
		return really()
	}}
	r := relay(t, src, b, outbox.WithLease(500*time.Millisecond))
	require.NoError(t, r.Drain(t.Context()))
	assert.EqualValues(t, 1, r.Stats().ClaimsLost)
	require.Eventually(t, func() bool { return r.Drain(t.Context()) == nil && len(b.got()) == 4 }, 5*time.Second, 5*time.Millisecond)
	assert.Equal(t, ids(a), of(b.got(), "a"))
	assert.Empty(t, unsent(t, store, key))
}

func TestSourceThatFailsToClaim(t *testing.T) {
	store, b := memory.New(), &broker{}
	a := plain(t, "a", 1)
	seed(t, store, "a", a...)
	var failures atomic.Int32
	failures.Store(1)
	src := &faulty{Source: store, claim: func(really func() ([]outbox.Batch, error)) ([]outbox.Batch, error) {
		if failures.Add(-1) >= 0 {
			return nil, errStore
		}
		return really()
	}}
	r := relay(t, src, b)
	require.ErrorIs(t, r.Drain(t.Context()), errStore, "Drain tells")
	failures.Store(4)
	run(t, r)
	require.Eventually(t, func() bool { return len(b.got()) == 1 }, 10*time.Second, time.Millisecond, "Run waits for it")
	assert.EqualValues(t, 5, r.Stats().SourceErrors)
}

func TestStopFinishesWhatIsInHand(t *testing.T) {
	store, b := memory.New(), &broker{}
	var a []outbox.Message
	for i := range 5 {
		a = append(a, msg(t, "a", i, outbox.Message{Key: fmt.Sprint(i)})) // five calls
	}
	key := seed(t, store, "a", a...)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := outbox.PublisherFunc(func(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		once.Do(func() { close(entered); <-goOn })
		return b.Publish(ctx, msgs)
	})
	r := relay(t, store, p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-entered
	cancel()
	later := plain(t, "later", 1)
	seed(t, store, "later", later...)
	close(goOn)
	require.NoError(t, <-done)
	assert.Equal(t, ids(a), ids(b.got()), "all five, and nothing that was not in hand")
	assert.Empty(t, unsent(t, store, key))
}

func TestStopGivesBackWhatItCouldNotFinish(t *testing.T) {
	store, b := memory.New(), &broker{}
	stuck, waiting := plain(t, "stuck", 2), plain(t, "waiting", 2)
	seed(t, store, "waiting", waiting...)
	var mu sync.Mutex
	failed, entered := false, make(chan struct{})
	p := outbox.PublisherFunc(func(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		mu.Lock()
		first := !failed
		failed = true
		mu.Unlock()
		if first { // "waiting" has to wait for longer than the test takes
			return []outbox.Result{{ID: msgs[0].ID, Err: errors.New("internal failure")}, {ID: msgs[1].ID, Err: outbox.ErrHeldBack}}, nil
		}
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r, err := outbox.NewRelay(store, p, outbox.WithPoll(time.Millisecond, time.Millisecond),
		outbox.WithBackoff(15*time.Second, 15*time.Second), outbox.WithGrace(20*time.Millisecond), outbox.WithLease(time.Minute))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.Eventually(t, func() bool { return r.Stats().Failed == 1 }, 5*time.Second, time.Millisecond)
	seed(t, store, "stuck", stuck...)
	<-entered
	cancel()
	require.NoError(t, <-done)
	assert.False(t, r.Stats().Down, "being cut short says nothing about the broker")

	require.NoError(t, relay(t, store, b).Drain(t.Context()))
	assert.Equal(t, ids(stuck), of(b.got(), "stuck"))
	assert.Equal(t, ids(waiting), of(b.got(), "waiting"))
}

// When the source hangs up as well, the end is not waited for once per run.
func TestStopWithAFailingSource(t *testing.T) {
	store := memory.New()
	for i := range 60 {
		seed(t, store, fmt.Sprint("r", i), plain(t, fmt.Sprint("r", i), 1)...)
	}
	entered := make(chan struct{})
	p := outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) ([]outbox.Result, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	var writes atomic.Int32
	src := &faulty{Source: store, sent: func(outbox.Batch, []string, func() error) error {
		writes.Add(1)
		return errStore
	}}
	r := relay(t, src, p, outbox.WithGrace(0), outbox.WithLease(time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-entered
	cancel()
	require.NoError(t, <-done)
	assert.LessOrEqual(t, writes.Load(), int32(16), "a few at a time, one try each")
}

func TestDrainStopsWithItsContext(t *testing.T) {
	store, b := memory.New(), &broker{}
	seed(t, store, "a", plain(t, "a", 1)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, relay(t, store, b).Drain(ctx), context.Canceled)
	assert.Empty(t, b.got())

	// A broker that is down holds Drain up for no longer than its deadline, and what it had in hand is due again.
	clk := &clock.Fake{}
	b.outage = func() error { return errDown }
	ctx, cancel = clk.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := relay(t, store, b, outbox.WithBackoff(time.Minute, time.Minute), outbox.WithLease(10*time.Minute), outbox.WithClock(clk))
	done := make(chan error, 1)
	go func() { done <- r.Drain(ctx) }()
	require.Eventually(t, func() bool { return r.Stats().Outages == 1 }, 10*time.Second, time.Millisecond)
	clk.Advance(8900 * time.Millisecond)
	select {
	case err := <-done:
		t.Fatal("it ended early", err)
	case <-time.After(20 * time.Millisecond):
	}
	clk.Advance(200 * time.Millisecond)
	err := <-done
	require.ErrorIs(t, err, outbox.ErrOutage)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, ctx.Err(), "it leaves time for the rest")
	batches, err := store.Claim(t.Context(), 10, time.Second)
	require.NoError(t, err)
	assert.Len(t, batches, 1)
}

func TestPollingAdapts(t *testing.T) {
	clk := &clock.Fake{}
	store, b := memory.New(memory.WithClock(clk)), &broker{}
	var claims atomic.Int32
	src := &faulty{Source: store, claim: func(really func() ([]outbox.Batch, error)) ([]outbox.Batch, error) {
		claims.Add(1)
		return really()
	}}
	r, err := outbox.NewRelay(src, b, outbox.WithClock(clk), outbox.WithPoll(100*time.Millisecond, 5*time.Second))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	// A minute of nothing: 100 ms, doubled to 5 s, is some 17 looks, spread by a quarter.
	for range 600 {
		seen := claims.Load()
		clk.Advance(100 * time.Millisecond)
		if seen < 30 {
			time.Sleep(200 * time.Microsecond) // lets the loop run; more looks than allowed would show below
		}
	}
	idle := claims.Load()
	assert.Positive(t, idle)
	assert.LessOrEqual(t, idle, int32(24))
	seed(t, store, "a", plain(t, "a", 1)...)
	require.Eventually(t, func() bool {
		clk.Advance(100 * time.Millisecond)
		return len(b.got()) == 1
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestLagIsTheAgeOfTheOldest(t *testing.T) {
	store, b := memory.New(), &broker{}
	old := plain(t, "a", 2)
	old[0].Time = time.Now().Add(-time.Hour)
	seed(t, store, "a", old...)
	seed(t, store, "c", plain(t, "c", 1)...)
	b.outage = func() error { return errDown }
	r := relay(t, store, b)
	require.ErrorIs(t, r.Drain(t.Context()), outbox.ErrOutage)
	s := r.Stats()
	assert.GreaterOrEqual(t, s.Lag, time.Hour, "also of what was given back")
	assert.WithinDuration(t, old[0].Time, s.Oldest, time.Millisecond)
	b.set(func(b *broker) { b.outage = nil })
	require.NoError(t, r.Drain(t.Context()))
	assert.Zero(t, r.Stats().Lag)
	assert.Zero(t, r.Stats().Oldest)
}

func claimed(t *testing.T, store state.Store, run string, lease time.Duration, msgs ...outbox.Message) outbox.Batch {
	key := begin(t, store, run)
	complete(t, store, key, &state.Claim{Token: "inline", Until: time.Now().Add(lease)}, msgs...)
	return outbox.Batch{RunKey: key, Token: "inline", Messages: msgs}
}

func TestDeliverSendsWhatTheClosingWriteClaimed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store state.Store) {
		b := &broker{}
		r := relay(t, store, b)
		assert.Equal(t, 2*time.Second, r.Lease())
		a := []outbox.Message{msg(t, "a", 0, outbox.Message{Key: "1"}), msg(t, "a", 1, outbox.Message{Key: "2"}), msg(t, "a", 2, outbox.Message{})}
		batch := claimed(t, store, "a", r.Lease(), a...)
		require.NoError(t, r.Drain(t.Context()))
		require.Empty(t, b.got(), "the claim keeps other relays away")

		require.NoError(t, r.Deliver(t.Context(), batch, r.Lease()))
		assert.Equal(t, ids(a), ids(b.got()))
		rec, err := store.Get(t.Context(), batch.RunKey)
		require.NoError(t, err)
		assert.Empty(t, rec.Outbox.Messages)
		assert.False(t, rec.ExpiresAt.IsZero())
		require.NoError(t, r.Deliver(t.Context(), outbox.Batch{RunKey: batch.RunKey}, r.Lease()), "nothing to send")
	})
}

func TestDeliverThatFailsLeavesTheRestDue(t *testing.T) {
	for name, tc := range map[string]struct {
		outage error
		first  func(outbox.Message) *outbox.Result
		left   time.Duration
		cancel bool
		want   error
		sent   int
	}{
		"outage":         {outage: errDown, left: time.Minute, want: outbox.ErrOutage},
		"failure":        {first: func(outbox.Message) *outbox.Result { return &outbox.Result{Err: errDown} }, left: time.Minute, want: outbox.ErrUnsent},
		"refusal":        {first: refuse("#shop#a/notify/1"), left: time.Minute, want: outbox.ErrUnsent, sent: 1},
		"no lease left":  {left: time.Millisecond, want: outbox.ErrUnsent},
		"caller is gone": {left: time.Minute, cancel: true, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			store, b := memory.New(), &broker{verdict: tc.first}
			b.outage = func() error { return tc.outage }
			a := plain(t, "a", 3)
			batch := claimed(t, store, "a", time.Hour, a...)
			r := relay(t, store, b)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.cancel {
				cancel()
			}
			require.ErrorIs(t, r.Deliver(ctx, batch, tc.left), tc.want)
			assert.Len(t, b.got(), tc.sent)
			assert.Equal(t, ids(a[tc.sent:]), unsent(t, store, batch.RunKey))
			assert.Empty(t, parked(t, store), "one refusal of five")

			b.set(func(b *broker) { b.outage, b.verdict = nil, nil })
			require.NoError(t, r.Drain(t.Context()), "the claim was released")
			assert.Equal(t, ids(a), ids(b.got()))
		})
	}
}

func TestDeliverAsksNotDuringAKnownOutage(t *testing.T) {
	store, b := memory.New(), &broker{outage: func() error { return errDown }}
	r, err := outbox.NewRelay(store, b, outbox.WithBackoff(time.Minute, time.Minute))
	require.NoError(t, err)
	require.ErrorIs(t, r.Deliver(t.Context(), claimed(t, store, "a", time.Hour, plain(t, "a", 1)...), time.Minute), errDown)
	require.ErrorIs(t, r.Deliver(t.Context(), claimed(t, store, "c", time.Hour, plain(t, "c", 1)...), time.Minute), outbox.ErrOutage)
	assert.Equal(t, 1, b.called())
}

func TestDeliverWaitsNotForABrokerThatDoesNotAnswer(t *testing.T) {
	store := memory.New()
	p := outbox.PublisherFunc(func(ctx context.Context, _ []outbox.Message) ([]outbox.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := relay(t, store, p, outbox.WithInlineTimeout(20*time.Millisecond), outbox.WithLease(time.Hour))
	start := time.Now()
	batch := claimed(t, store, "a", time.Hour, plain(t, "a", 1)...)
	require.ErrorIs(t, r.Deliver(t.Context(), batch, time.Hour), outbox.ErrOutage)
	assert.Less(t, time.Since(start), 10*time.Second)
	assert.True(t, r.Stats().Down)
	assert.Len(t, unsent(t, store, batch.RunKey), 1)
}

func TestDeliverParksAtTheLimit(t *testing.T) {
	store, b := memory.New(), &broker{}
	a := plain(t, "a", 2)
	b.verdict = refuse(a[0].ID)
	r := relay(t, store, b, outbox.WithMaxRefusals(1))
	require.ErrorIs(t, r.Deliver(t.Context(), claimed(t, store, "a", time.Hour, a...), time.Minute), outbox.ErrUnsent)
	assert.Equal(t, ids(a[:1]), parked(t, store))
}

// Nothing of what a message says may come out in the log or in an error.
func TestLogsTellNoContent(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	store, b := memory.New(), &broker{}
	a := msg(t, "a", 0, outbox.Message{Body: "secret", Attributes: map[string]string{"secret-name": "secret"}})
	seed(t, store, "a", a)
	n := 0
	b.outage = func() error {
		if n++; n == 1 {
			return errDown
		}
		return nil
	}
	b.verdict = refuse(a.ID)
	r := relay(t, store, b, outbox.WithLogger(zap.New(core)), outbox.WithMaxRefusals(2))
	require.NoError(t, r.Drain(t.Context()))
	var events []string
	for _, e := range logs.All() {
		events = append(events, e.Message)
		assert.NotContains(t, fmt.Sprint(e.ContextMap()), "secret")
	}
	assert.Equal(t, []string{"broker_down", "broker_up", "message_refused", "message_refused", "message_parked"}, events)
	parked := logs.FilterMessage("message_parked").All()[0]
	assert.Equal(t, zap.ErrorLevel, parked.Level)
	assert.Equal(t, "#shop#a", parked.ContextMap()["key"])
	assert.Equal(t, a.ID, parked.ContextMap()["message"])
}

// Run, Drain and Deliver of one relay may go on at the same time, beside another relay. Nothing is lost or out of order,
// and while no lease lapses nothing is sent twice.
func TestEverythingAtOnce(t *testing.T) {
	store, b := memory.New(), &broker{}
	one, two := relay(t, store, b, outbox.WithBatch(5), outbox.WithLease(time.Minute)), relay(t, store, b, outbox.WithBatch(7), outbox.WithLease(time.Minute))
	stops := []func(){run(t, one), run(t, two)}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprint("w", w, "-", i)
				if i%2 == 0 {
					seed(t, store, name, plain(t, name, 3)...)
					assert.NoError(t, one.Drain(t.Context()))
				} else {
					batch := claimed(t, store, name, time.Minute, plain(t, name, 3)...)
					assert.NoError(t, two.Deliver(t.Context(), batch, time.Minute))
				}
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return len(b.got()) >= 600 }, 20*time.Second, time.Millisecond)
	for _, stop := range stops {
		stop()
	}
	log := b.got()
	require.Len(t, ids(log), 600, "each once")
	for w := range 4 {
		for i := range 50 {
			name := fmt.Sprint("w", w, "-", i)
			require.Equal(t, ids(plain(t, name, 3)), of(log, name))
		}
	}
	assert.Zero(t, one.Stats().ClaimsLost+two.Stats().ClaimsLost)
	assert.Zero(t, one.Stats().InHand+two.Stats().InHand)
	assert.EqualValues(t, 600, one.Stats().Sent+two.Stats().Sent)
}

// What waits in memory is bounded: a relay whose every message fails doesn't take the whole store into its hand.
func TestWaitingRunsAreBounded(t *testing.T) {
	store, b := memory.New(), &broker{}
	for i := range 300 {
		seed(t, store, fmt.Sprint("r", i), plain(t, fmt.Sprint("r", i), 1)...)
	}
	b.verdict = func(outbox.Message) *outbox.Result { return &outbox.Result{Err: errDown} }
	r, err := outbox.NewRelay(store, b, outbox.WithPoll(time.Millisecond, time.Millisecond), outbox.WithBatch(5), outbox.WithWorkers(1),
		outbox.WithBackoff(time.Minute, time.Minute), outbox.WithLease(time.Hour))
	require.NoError(t, err)
	stop := run(t, r)
	require.Eventually(t, func() bool { return r.Stats().Failed == 300 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return r.Stats().InHand <= 55 }, 20*time.Second, time.Millisecond)
	assert.Positive(t, r.Stats().Lag, "those that were let go count still")
	stop()
	assert.Zero(t, r.Stats().InHand)
}

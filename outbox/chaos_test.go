package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// mortal stands between a relay and the world. Once it is dead nothing gets through either way, as if the process had
// been killed: no release, no removal, no goodbye.
type mortal struct {
	outbox.Source
	to   outbox.Publisher
	dead atomic.Bool
}

var errDead = errors.New("killed")

func (m *mortal) alive(err error) error {
	if m.dead.Load() {
		return errDead
	}
	return err
}

func (m *mortal) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	if err := m.alive(nil); err != nil {
		return nil, err
	}
	b, err := m.Source.Claim(ctx, limit, lease)
	return b, m.alive(err)
}

func (m *mortal) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	if err := m.alive(nil); err != nil {
		return err
	}
	return m.alive(m.Source.Sent(ctx, b, ids))
}

func (m *mortal) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	if err := m.alive(nil); err != nil {
		return nil, err
	}
	res, err := m.to.Publish(ctx, msgs)
	return res, m.alive(err)
}

// chaos relays messages of many runs with four relays, of which one is killed again and again, to a broker that is down
// half of the time, and checks that every message arrives, in order per run. It returns how many were sent twice.
func chaos(t *testing.T, store state.Store, runs int, lease time.Duration) (duplicates int) {
	b := &broker{}
	var up atomic.Bool
	up.Store(true)
	b.outage = func() error {
		time.Sleep(time.Millisecond) // a call takes time
		if !up.Load() {
			return errDown
		}
		return nil
	}
	b.lost = func() bool { return rand.IntN(10) == 0 }
	stopped, stop := context.WithCancel(t.Context())
	defer stop()

	kills := make(chan int)
	began := time.Now()
	for range 4 {
		go func() {
			n := 0
			defer func() { kills <- n }()
			for stopped.Err() == nil {
				// One of four dies every 50 ms; on a busy machine that is too soon to get anywhere, so they come to live longer.
				slow := 1 + int(time.Since(began).Seconds())/10
				life := time.Duration((20+rand.IntN(360))*slow) * time.Millisecond
				if untilKilled(t, store, b, lease, life, stopped) {
					n++
				}
			}
		}()
	}
	go func() {
		for every := time.NewTicker(40 * time.Millisecond); stopped.Err() == nil; {
			select {
			case <-every.C:
				up.Store(!up.Load())
			case <-stopped.Done():
				every.Stop()
			}
		}
	}()

	for i := range runs {
		seed(t, store, fmt.Sprint("r", i), plain(t, fmt.Sprint("r", i), 3)...)
		if i%10 == 0 {
			time.Sleep(15 * time.Millisecond) // spreads the load over the lives and deaths
		}
	}
	require.Eventually(t, func() bool {
		seen := map[string]bool{}
		for _, m := range b.got() {
			seen[m.ID] = true
		}
		return len(seen) == 3*runs
	}, 2*time.Minute, 20*time.Millisecond)
	stop()
	killed := 0
	for range 4 {
		killed += <-kills
	}
	assert.Greater(t, killed, 10, "relays died")

	log := b.got()
	for i := range runs {
		run := fmt.Sprint("r", i)
		require.Equal(t, ids(plain(t, run, 3)), of(log, run), "first copies, in order")
	}
	assert.Empty(t, parked(t, store), "an outage parks nothing")
	return len(log) - 3*runs
}

// untilKilled runs a relay for a time and then kills it, unless the test ends before.
func untilKilled(t *testing.T, store state.Store, b *broker, lease, life time.Duration, stopped context.Context) bool {
	m := &mortal{Source: store, to: b}
	r, err := outbox.NewRelay(m, m, quick(outbox.WithLease(lease), outbox.WithBatch(12), outbox.WithWorkers(2), outbox.WithGrace(0))...)
	if !assert.NoError(t, err) {
		return false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(stopped))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	killed := false
	select {
	case <-time.After(life):
		m.dead.Store(true)
		killed = true
	case <-stopped.Done():
	}
	cancel()
	assert.NoError(t, <-done)
	return killed
}

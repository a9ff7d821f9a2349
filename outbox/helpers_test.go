package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// msg is a message of the run "#shop#<run>", with its position as the index of its ID. Without a topic it goes to "t".
func msg(t testing.TB, run string, index int, m outbox.Message) outbox.Message {
	t.Helper()
	if m.Topic == "" {
		m.Topic = "t"
	}
	if m.Body == nil {
		m.Body = fmt.Sprintf("%s %d", run, index)
	}
	enc, err := m.Encode()
	require.NoError(t, err)
	enc.ID = fmt.Sprintf("#shop#%s/notify/%d", run, index)
	enc.Time = time.Now().UTC().Truncate(time.Millisecond)
	return enc
}

// plain are n messages of a run, to one topic, without an ordering key.
func plain(t testing.TB, run string, n int) []outbox.Message {
	t.Helper()
	msgs := make([]outbox.Message, n)
	for i := range msgs {
		msgs[i] = msg(t, run, i, outbox.Message{})
	}
	return msgs
}

func ids(msgs []outbox.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = m.ID
	}
	return out
}

// begin stores a run in progress, and returns its key.
func begin(t testing.TB, store state.Store, run string) string {
	t.Helper()
	key, err := state.Key{Operation: "shop", ID: run}.Encode()
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Millisecond)
	existing, err := store.Create(context.Background(), &state.Record{
		Key: key, Operation: "shop", Version: 1, Plan: []string{"notify"}, Retention: time.Hour,
		Status: state.StatusInProgress, CurrentStep: "notify",
		Steps:       []state.StepRecord{{Name: "notify", Status: state.StepPending}},
		PayloadHash: "1:x", Input: []byte(`{}`), Owner: "holder", WriteID: "create", Runs: 1,
		LeaseUntil: now.Add(time.Minute), Revision: 1, CreatedAt: now, UpdatedAt: now,
	})
	require.NoError(t, err)
	require.Nil(t, existing)
	return key
}

// complete closes the run of begin with the write that makes its messages due.
func complete(t testing.TB, store state.Store, key string, claim *state.Claim, msgs ...outbox.Message) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	ch := &state.Change{
		Key: key, IfOwner: "holder", IfRevision: 1, WriteID: "close", Runs: 1,
		Status: state.StatusCompleted, UpdatedAt: now, Claim: claim, Messages: msgs, Response: []byte(`null`),
		Steps: []state.StepChange{{StepRecord: state.StepRecord{Name: "notify", Status: state.StepDone, Attempts: 1, Output: []byte("null"), EndedAt: now}}},
	}
	if len(msgs) == 0 {
		ch.ExpiresAt = state.CeilSecond(now.Add(time.Hour))
	}
	require.NoError(t, store.Commit(context.Background(), ch))
}

// seed stores a completed run with these messages unsent.
func seed(t testing.TB, store state.Store, run string, msgs ...outbox.Message) string {
	t.Helper()
	key := begin(t, store, run)
	complete(t, store, key, nil, msgs...)
	return key
}

func unsent(t testing.TB, store state.Store, key string) []string {
	t.Helper()
	rec, err := store.Get(context.Background(), key)
	require.NoError(t, err)
	var out []string
	for _, m := range rec.Outbox.Messages {
		out = append(out, m.ID)
	}
	return out
}

func parked(t testing.TB, store state.Store) []string {
	t.Helper()
	var out []string
	for cursor := ""; ; {
		msgs, next, err := store.Parked(context.Background(), cursor)
		require.NoError(t, err)
		out = append(out, ids(msgs)...)
		if next == "" {
			return out
		}
		cursor = next
	}
}

// broker is a broker in memory that keeps order: within a call, a message behind a failed one of the same topic and key
// is held back. It notes every copy that it accepts.
type broker struct {
	mu    sync.Mutex
	log   []outbox.Message
	calls int
	// verdict, if set, says what becomes of a message: nil is accepted.
	verdict func(outbox.Message) *outbox.Result
	// outage, if set, is asked first; an error fails the call as a whole.
	outage func() error
	// lost, if set, tells whether the answer to a call is lost after the broker has done its work.
	lost func() bool
}

var errDown = errors.New("connection refused")

func (b *broker) Publish(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.outage != nil {
		if err := b.outage(); err != nil {
			return nil, err
		}
	}
	results := make([]outbox.Result, len(msgs))
	stopped := map[string]bool{}
	for i, m := range msgs {
		lane := m.Topic + "\x00" + m.Key
		results[i].ID = m.ID
		switch {
		case stopped[lane]:
			results[i].Err = outbox.ErrHeldBack
			continue
		case b.verdict != nil:
			if v := b.verdict(m); v != nil {
				results[i].Err, results[i].Refused = v.Err, v.Refused
				stopped[lane] = true
				continue
			}
		}
		b.log = append(b.log, m)
	}
	if b.lost != nil && b.lost() {
		return nil, errDown
	}
	return results, nil
}

func (b *broker) set(f func(*broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

func (b *broker) got() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

func (b *broker) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// of are the IDs that arrived of one run, first copies alone, in order of arrival.
func of(log []outbox.Message, run string) []string {
	var out []string
	for _, m := range log {
		if strings.HasPrefix(m.ID, "#shop#"+run+"/") && !slices.Contains(out, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out
}

func refuse(ids ...string) func(outbox.Message) *outbox.Result {
	return func(m outbox.Message) *outbox.Result {
		if slices.Contains(ids, m.ID) {
			return &outbox.Result{Err: errors.New("malformed"), Refused: true}
		}
		return nil
	}
}

// quick are options for tests in real time.
func quick(more ...outbox.Option) []outbox.Option {
	return append([]outbox.Option{
		outbox.WithPoll(time.Millisecond, 5*time.Millisecond),
		outbox.WithBackoff(time.Millisecond, 4*time.Millisecond),
		outbox.WithLease(2 * time.Second),
	}, more...)
}

func relay(t testing.TB, s outbox.Source, p outbox.Publisher, opts ...outbox.Option) *outbox.Relay {
	t.Helper()
	r, err := outbox.NewRelay(s, p, quick(opts...)...)
	require.NoError(t, err)
	return r
}

// run starts r.Run, and returns what stops it and waits for it.
func run(t testing.TB, r *outbox.Relay) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(20 * time.Second):
				t.Fatal("Run does not return")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// faulty wraps a source with faults for some of its calls.
type faulty struct {
	outbox.Source
	claim func(func() ([]outbox.Batch, error)) ([]outbox.Batch, error)
	sent  func(b outbox.Batch, ids []string, real func() error) error
	park  func(real func() error) error
}

func (f *faulty) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	really := func() ([]outbox.Batch, error) { return f.Source.Claim(ctx, limit, lease) }
	if f.claim == nil {
		return really()
	}
	return f.claim(really)
}

func (f *faulty) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	really := func() error { return f.Source.Sent(ctx, b, ids) }
	if f.sent == nil {
		return really()
	}
	return f.sent(b, ids, really)
}

func (f *faulty) Park(ctx context.Context, b outbox.Batch, id, reason string) error {
	really := func() error { return f.Source.Park(ctx, b, id, reason) }
	if f.park == nil {
		return really()
	}
	return f.park(really)
}

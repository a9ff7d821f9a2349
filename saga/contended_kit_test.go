package saga_test

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tsuzuki-go/tsuzuki/internal/dynamotest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/dynamostore"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func init() { children["contended"] = childContended }

// bureau is a participant in a folder, for processes that call it at once: a file for each key, which the first call
// with it makes, and which every other call with it is answered from.
type bureau string

func (b bureau) do(step, key string) (voucher, error) {
	id := make([]byte, 10)
	if _, err := rand.Read(id); err != nil {
		return voucher{}, err
	}
	mine := step + "-" + base32.StdEncoding.EncodeToString(id)
	draft, file := filepath.Join(string(b), "draft-"+mine), b.file(key)
	if err := os.WriteFile(draft, []byte(mine), 0o600); err != nil {
		return voucher{}, err
	}
	err := os.Link(draft, file) // all of it, or not at all
	if err = errors.Join(ignore(err, os.ErrExist), os.Remove(draft)); err != nil {
		return voucher{}, err
	}
	first, err := os.ReadFile(file)
	return voucher{string(first)}, err
}

func (b bureau) file(key string) string {
	return filepath.Join(string(b), "effect-"+base32.StdEncoding.EncodeToString([]byte(key)))
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// witness is a store that notes which writes of this process were acknowledged to it, and that can be slow to send them.
type witness struct {
	state.Store
	mu     sync.Mutex
	said   testimony
	frozen time.Time // until when nothing is sent
}

// freeze lets nothing of this process's through until long after its lease has lapsed, as if it stood still.
func (w *witness) freeze() {
	until := time.Now().Add(shortLease * 3 / 2)
	w.mu.Lock()
	w.frozen = until
	w.mu.Unlock()
	<-time.After(time.Until(until))
}

func (w *witness) thaw() {
	w.mu.Lock()
	until := w.frozen
	w.mu.Unlock()
	<-time.After(time.Until(until))
}

// testimony is what a process has seen of one run.
type testimony struct {
	// Created: it was told that the run is its own.
	Created bool
	// Revisions are those that its writes made.
	Revisions []int64
	// Done are the results that it has recorded, by step.
	Done map[string][]string
	// Result of the run, and how often it had to call; none: it has died before.
	Result []string
	Calls  int
}

func (w *witness) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	existing, err := w.Store.Create(ctx, rec)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said.Created = w.said.Created || err == nil && (existing == nil || existing.WriteID == rec.WriteID)
	return existing, err
}

func (w *witness) Commit(ctx context.Context, ch *state.Change) error {
	w.thaw()
	err := w.Store.Commit(context.WithoutCancel(ctx), ch) // what is on its way arrives, be it late
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said.Revisions = append(w.said.Revisions, ch.IfRevision+1)
	for _, s := range ch.Steps {
		if s.Status == state.StepDone {
			w.said.Done[s.Name] = append(w.said.Done[s.Name], string(s.Output))
		}
	}
	return nil
}

func (w *witness) seen() testimony {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said
}

// contended is the chain of five, each of whose steps has an effect at the bureau and emits a message. after runs between
// the effect and the record.
func (s *site) contended(b bureau, after func(step string)) *saga.Definition[order, []string] {
	c := chain{p: new(participant)}
	c.declare = func(_ int, step *steps.Step[order, voucher]) {
		*step = *steps.New(step.Name(), func(_ context.Context, r *orderRun) (voucher, error) {
			_, err := s.ledger.do(r.Step(), r.IdempotencyKey())
			if err != nil {
				return voucher{}, err
			}
			got, err := b.do(r.Step(), r.IdempotencyKey())
			r.Emit(outbox.Message{Topic: "news", Body: got})
			after(r.Step())
			return got, err
		}).Retry(once)
	}
	return c.of(five)
}

// childContended runs one key after the other until it has its result, as a caller does. It is told the bureau's folder,
// whether the SDK tries again by itself, and when to begin.
func childContended() int {
	ctx := context.Background()
	told := strings.Split(os.Getenv(extraVariable), "|")
	s := &site{ledger: fileLedger(os.Getenv(ledgerVariable))}
	endpoint, table, _ := strings.Cut(os.Getenv(placeVariable), " ")
	client := dynamotest.NewClient(endpoint, http.DefaultTransport, func(o *dynamodb.Options) {
		if told[1] == "once" {
			o.Retryer = aws.NopRetryer{}
		}
	})
	store, err := dynamostore.New(client, table)
	if err != nil {
		return complain(err)
	}
	ms, err := strconv.ParseInt(told[2], 10, 64)
	if err != nil {
		return complain(err)
	}
	<-time.After(time.Until(time.UnixMilli(ms)))
	var seen [herdKeys]testimony
	for i := range seen {
		w := &witness{Store: store, said: testimony{Done: map[string][]string{}}}
		o, err := saga.New(s.contended(bureau(told[0]), func(step string) {
			if step != fmt.Sprintf("s%d", i+1) || !bureau(told[0]).first(step) {
				return
			}
			if !dies(i) {
				w.freeze()
				return
			}
			seen[i] = w.seen()
			answer(seen)
			os.Exit(crashed)
		}), w, saga.WithLease(shortLease))
		if err != nil {
			return complain(err)
		}
		result, calls, err := insist(ctx, o, herdKey(i))
		if err != nil {
			return complain(err)
		}
		seen[i] = w.seen()
		seen[i].Result, seen[i].Calls = result, calls
	}
	return answer(seen)
}

// dies tells whether the first holder that comes to a step of the key at i, the one at i, dies between its effect and its
// record, or stands still there for longer than its lease.
func dies(i int) bool { return i%2 == 0 }

// first tells whether nobody else has asked for this before.
func (b bureau) first(what string) bool {
	f, err := os.OpenFile(filepath.Join(string(b), "first-"+what), os.O_CREATE|os.O_EXCL, 0o600)
	return err == nil && f.Close() == nil
}

// insist calls until it has the result.
func insist(ctx context.Context, o *saga.Orchestrator[order, []string], key saga.Key) (result []string, calls int, err error) {
	for until := time.Now().Add(time.Minute); ; {
		calls++
		result, err = o.Run(ctx, key, theOrder, saga.Wait(time.Second))
		var e *saga.Error
		if err == nil || !errors.As(err, &e) || !callAgain(e) || time.Now().After(until) {
			return result, calls, err
		}
		<-time.After(min(e.RetryAfter, 100*time.Millisecond))
	}
}

// callAgain tells whether the caller of a run is to call again with the same key.
func callAgain(e *saga.Error) bool {
	for _, kind := range []error{saga.ErrInProgress, saga.ErrInterrupted, saga.ErrLeaseLost, saga.ErrStore} {
		if errors.Is(e.Kind, kind) {
			return true
		}
	}
	return false
}

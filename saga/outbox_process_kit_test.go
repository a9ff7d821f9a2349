package saga_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func init() { children["news"] = childNews }

// The moments at which a process of "news" stands still, to be killed.
const (
	beforeCommit = "before-commit" // of the step that emits
	afterCommit  = "after-commit"
	afterPublish = "published" // and not yet removed
	afterRemoval = "removed"
)

// errand is what a process of "news" is told.
type errand struct {
	// backward: it is the compensation of the step that emits.
	backward bool
	// at is where the process stands still; empty: nowhere.
	at string
	// refuses: the step emits, and fails for good.
	refuses bool
	// queue is the URL of an SQS queue; empty: a file.
	queue string
}

func (e errand) String() string {
	return fmt.Sprintf("%t|%s|%t|%s", e.backward, e.at, e.refuses, e.queue)
}

func errandOf(s string) errand {
	f := strings.SplitN(s, "|", 4)
	return errand{f[0] == "true", f[1], f[2] == "true", f[3]}
}

// ids are those of the messages that a run leaves.
func (e errand) ids() []string {
	step := theKey.Tenant + "#news#" + theKey.ID + "/notify"
	if e.backward {
		step += "/compensate"
	}
	return []string{step + "/0", step + "/1"}
}

// news is a saga of three steps, of which the second emits two messages, on its way forward or back.
func (s *site) news(e errand) *saga.Definition[order, string] {
	effect := func(r *orderRun) error {
		_, err := s.ledger.do(r.Step(), r.IdempotencyKey())
		return err
	}
	emit := func(r *orderRun) {
		r.Emit(outbox.Message{Topic: "news", Key: r.Input.No, Body: 1})
		r.Emit(outbox.Message{Topic: "news", Key: r.Input.No, Body: 2})
	}
	work := steps.Do("work", func(_ context.Context, r *orderRun) error { return effect(r) }).
		Compensate(func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error { return effect(r) })
	notify := steps.Do("notify", func(_ context.Context, r *orderRun) error {
		if !e.backward {
			emit(r)
		}
		if e.refuses {
			return steps.Permanent(errRefuse)
		}
		return effect(r)
	}).Compensate(func(_ context.Context, r *orderRun, _ steps.Outcome[steps.None]) error {
		if e.backward {
			emit(r)
		}
		return effect(r)
	})
	rest := steps.Do("rest", func(_ context.Context, r *orderRun) error {
		if e.backward {
			return steps.Permanent(errRefuse)
		}
		return effect(r)
	})
	return saga.Define("news", func(context.Context, *orderRun) (string, error) { return "told", nil }, work, notify, rest)
}

// relayTo is a relay that takes messages over soon after another one has died.
func relayTo(source outbox.Source, to outbox.Publisher) (*outbox.Relay, error) {
	return outbox.NewRelay(source, to, outbox.WithLease(shortLease))
}

// childNews runs the saga with an inline relay, and stands still where it is told to.
func childNews() int {
	ctx := context.Background()
	s, store, closed, err := here(ctx)
	if err != nil {
		return complain(err)
	}
	defer func() { _ = closed() }()
	e := errandOf(os.Getenv(extraVariable))
	stand := func(moment string) {
		if e.at == moment {
			fmt.Println("hanging")
			time.Sleep(time.Hour)
		}
	}
	store = &hookedStore{
		Store:        store,
		beforeCommit: func(ch *state.Change) { standIf(len(ch.Messages) > 0, stand, beforeCommit) },
		afterCommit:  func(ch *state.Change) { standIf(len(ch.Messages) > 0, stand, afterCommit) },
	}
	to, err := e.publisher(ctx, s)
	if err != nil {
		return complain(err)
	}
	relay, err := relayTo(&sentSource{store, func() { stand(afterRemoval) }}, outbox.PublisherFunc(func(ctx context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
		res, err := to.Publish(ctx, msgs)
		standIf(err == nil, stand, afterPublish)
		return res, err
	}))
	if err != nil {
		return complain(err)
	}
	o, err := saga.New(s.news(e), store, saga.WithLease(shortLease), saga.WithRelay(relay))
	if err != nil {
		return complain(err)
	}
	got, err := o.Run(ctx, theKey, theOrder, saga.Wait(time.Minute))
	if err != nil && !errors.Is(err, saga.ErrFailed) {
		return complain(err)
	}
	return answer(got)
}

func standIf(here bool, stand func(string), moment string) {
	if here {
		stand(moment)
	}
}

func (e errand) publisher(ctx context.Context, s *site) (outbox.Publisher, error) {
	if e.queue == "" {
		return s.queue(), nil
	}
	return sqsoutbox.New(ctx, sqs.New(sqs.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(os.Getenv("SQS_ENDPOINT")),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}), e.queue)
}

// sentSource tells when messages have been removed.
type sentSource struct {
	outbox.Source
	after func()
}

func (s *sentSource) Sent(ctx context.Context, b outbox.Batch, ids []string) error {
	err := s.Source.Sent(ctx, b, ids)
	if err == nil && len(ids) > 0 {
		s.after()
	}
	return err
}

// fileQueue is a broker in a file: the ID of each message that it is given.
type fileQueue string

func (s *site) queue() fileQueue { return fileQueue(string(s.ledger) + ".queue") }

func (q fileQueue) Publish(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	f, err := os.OpenFile(string(q), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var text strings.Builder
	results := make([]outbox.Result, len(msgs))
	for i, m := range msgs {
		results[i].ID = m.ID
		text.WriteString(m.ID + "\n")
	}
	_, err = f.WriteString(text.String())
	return results, err
}

func (q fileQueue) ids() []string { return append([]string{}, fileLedger(q).lines()...) }

// killed starts a process of "news", and kills it where it stands still.
func (s *site) killed(t *testing.T, e errand) {
	t.Helper()
	cmd, _ := s.process(t.Context(), "news", e.String())
	cmd.Stdout = nil
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make([]byte, 7)
	_, err = pipe.Read(said)
	require.NoError(t, err)
	require.Equal(t, "hanging", string(said), "it did not come to %s", e.at)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

// finished starts a process of "news" that does not die.
func (s *site) finished(t *testing.T, e errand) {
	t.Helper()
	e.at = ""
	cmd, _ := s.process(t.Context(), "news", e.String())
	require.NoError(t, cmd.Run())
}

// relayed relays, as a loop in another process does, until nothing is left of the run's messages.
func relayed(t *testing.T, store state.Store, to outbox.Publisher) *outbox.Relay {
	t.Helper()
	relay, err := relayTo(store, to)
	require.NoError(t, err)
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		require.NoError(t, relay.Drain(t.Context()))
		if len(recordOf(t, store, theKey, "news").Outbox.Messages) == 0 {
			return relay
		}
		require.True(t, time.Now().Before(until), "a dead relay's claim does not lapse")
	}
}

package killlab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// here is the participant without a process and a network between.
type here struct{ p *participant }

var _ outside = here{}

func (h here) call(c call) (line, error) {
	c.Sent = time.Now()
	l, err := h.p.take(c)
	switch {
	case err != nil:
		return l, err
	case l.Answer == answerDeclined:
		return l, steps.Permanent(errors.New("declined"))
	case l.Answer != answerOK && l.Answer != answerNo:
		return l, errBusy
	}
	return l, nil
}

func (h here) do(_ context.Context, c call) (string, error) {
	l, err := h.call(c)
	return l.ID, err
}

func (h here) undo(_ context.Context, c call) error {
	_, err := h.call(c)
	return err
}

func (h here) probe(_ context.Context, c call) (string, bool, error) {
	l, err := h.call(c)
	return l.ID, err == nil && l.Answer == answerOK, err
}

func (h here) Publish(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	var sent []outbox.Result
	for _, m := range msgs {
		if _, err := h.call(call{Kind: kindMessage, Key: m.ID, Body: string(m.Bytes())}); err != nil {
			return sent, err
		}
		sent = append(sent, outbox.Result{ID: m.ID})
	}
	return sent, nil
}

// goodBook is that of some runs of every saga in this process: completed and failed ones, with and without extras.
func goodBook(t *testing.T) book {
	t.Helper()
	store := memory.New()
	b := book{records: map[string]*state.Record{}, lease: time.Second}
	h := here{newParticipant(7, func(l line) error { b.lines = append(b.lines, l); return nil })}
	op := saga.NewOperator(store)
	for no := range 6 * len(specs) {
		spec, key, in := taskOf(no)
		o, err := saga.New(spec.definition(h), store, saga.WithRetry(steps.RetryPolicy{Initial: time.Millisecond, Max: time.Millisecond}))
		require.NoError(t, err)
		for {
			_, err = o.Run(t.Context(), key, in)
			if errors.Is(err, saga.ErrBlocked) {
				require.NoError(t, op.Retry(t.Context(), key, "it knows nothing of it"))
			} else if !errors.Is(err, saga.ErrInterrupted) {
				break
			}
		}
		if err != nil {
			require.ErrorIs(t, err, saga.ErrFailed)
		}
	}
	relay, err := outbox.NewRelay(store, h, outbox.WithBackoff(time.Millisecond, time.Millisecond), outbox.WithWorkers(1))
	require.NoError(t, err)
	require.NoError(t, relay.Drain(t.Context()))
	for no := range 6 * len(specs) {
		_, key, _ := taskOf(no)
		rec, err := op.Get(t.Context(), key)
		require.NoError(t, err)
		b.records[rec.Key] = rec
	}
	return b
}

// of is a run of a saga with that status, and with extras if there is a choice.
func (b book) of(t *testing.T, operation string, status state.Status) *state.Record {
	t.Helper()
	keys := []string{}
	for key, rec := range b.records {
		if rec.Operation == operation && rec.Status == status {
			keys = append(keys, key)
		}
	}
	require.NotEmpty(t, keys)
	return b.records[slices.Min(keys)]
}

// at is the first line of that kind for the key.
func (b book) at(t *testing.T, kind, key string) int {
	t.Helper()
	i := slices.IndexFunc(b.lines, func(l line) bool { return l.Kind == kind && l.Key == key && l.Answer == answerOK })
	require.GreaterOrEqual(t, i, 0, "%s %s", kind, key)
	return i
}

func (b *book) drop(kind, key string) {
	b.lines = slices.DeleteFunc(b.lines, func(l line) bool { return l.Kind == kind && l.Key == key })
}

func TestTheReconcilerFindsNothingInGoodBooks(t *testing.T) {
	b := goodBook(t)
	assert.Empty(t, reconcile(b))
	assert.Contains(t, figures(b), "18 runs")
	for _, spec := range specs {
		b.of(t, spec.name, state.StatusCompleted)
		b.of(t, spec.name, state.StatusFailed)
	}
}

func TestTheReconcilerFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		doctor func(t *testing.T, b *book)
		found  string
	}{
		"a run that is not at rest": {func(t *testing.T, b *book) {
			b.of(t, "trip", state.StatusCompleted).Status = state.StatusInterrupted
		}, "rests as INTERRUPTED"},
		"a run that is left to an operator": {func(t *testing.T, b *book) {
			b.of(t, "trip", state.StatusCompleted).Status = state.StatusBlocked
		}, "rests as BLOCKED"},
		"a forgotten run": {func(t *testing.T, b *book) {
			delete(b.records, b.of(t, "trip", state.StatusCompleted).Key)
		}, "a call of no run"},
		"a call of no step": {func(t *testing.T, b *book) {
			l := b.lines[b.at(t, kindDo, b.of(t, "trip", state.StatusCompleted).Key+"/hotel")]
			l.Step = "hostel"
			b.lines = append(b.lines, l)
		}, "a call of no step"},
		"an effect that never happened": {func(t *testing.T, b *book) {
			b.drop(kindDo, b.of(t, "order", state.StatusCompleted).Key+"/ship")
		}, `ship: DONE with the result "ship-`},
		"a result that is not the ledger's": {func(t *testing.T, b *book) {
			rec := b.of(t, "order", state.StatusCompleted)
			rec.Steps[rec.StepIndex("ship")].Output = []byte(`"ship-0"`)
		}, `ship: DONE with the result "ship-0"`},
		"a run's result that is not the steps'": {func(t *testing.T, b *book) {
			b.of(t, "order", state.StatusCompleted).Response = []byte(`["ship-0"]`)
		}, `its result is ["ship-0"]`},
		"a second effect": {func(t *testing.T, b *book) {
			l := b.lines[b.at(t, kindDo, b.of(t, "trip", state.StatusCompleted).Key+"/hotel")]
			l.ID += "0"
			b.lines = append(b.lines, l)
		}, "hotel: two effects"},
		"another content under one key": {func(t *testing.T, b *book) {
			l := b.lines[b.at(t, kindDo, b.of(t, "trip", state.StatusCompleted).Key+"/hotel")]
			l.Body += "!"
			b.lines = append(b.lines, l)
		}, "two calls under one key"},
		"a result that is lost on the way to the next step": {func(t *testing.T, b *book) {
			key := b.of(t, "trip", state.StatusCompleted).Key + "/flight"
			for i, l := range b.lines {
				if l.Kind == kindDo && l.Key == key {
					b.lines[i].Body = strings.Replace(l.Body, "hotel-", "hotel", 1)
				}
			}
		}, "flight: it asked for"},
		"a call after the end": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusCompleted)
			l := b.lines[b.at(t, kindDo, rec.Key+"/hotel")]
			l.Sent = rec.Steps[0].EndedAt.Add(b.stall() + time.Second)
			b.lines = append(b.lines, l)
		}, "hotel: called after it was DONE"},
		"a first call after the end": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusCompleted)
			for i, l := range b.lines {
				if l.Key == rec.Key+"/pay" {
					b.lines[i].Sent = rec.Steps[4].EndedAt.Add(20 * time.Millisecond)
				}
			}
		}, "pay: called after it was DONE"},
		"a call before its turn": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusCompleted)
			b.lines[b.at(t, kindDo, rec.Key+"/car")].Sent = rec.CreatedAt.Add(-time.Second)
		}, "car: called before hotel was recorded"},
		"a call of a step that was skipped": {func(t *testing.T, b *book) {
			for _, rec := range b.records {
				i := rec.StepIndex("insurance")
				if i < 0 || rec.Status != state.StatusCompleted || rec.Steps[i].Status != state.StepSkipped {
					continue
				}
				l := b.lines[b.at(t, kindDo, rec.Key+"/hotel")]
				l.Step, l.Key, l.Of = "insurance", rec.Key+"/insurance", rec.Key+"/insurance"
				b.lines = append(b.lines, l)
				return
			}
			require.Fail(t, "no run without insurance")
		}, "insurance: SKIPPED after 1 calls"},
		"an undo of a completed run": {func(t *testing.T, b *book) {
			key := b.of(t, "trip", state.StatusCompleted).Key
			l := line{call: call{Kind: kindUndo, Run: key, Step: "car", Key: key + "/car/compensate", Of: key + "/car", Sent: time.Now()}, Took: true, Answer: answerOK}
			b.lines = append(b.lines, l)
		}, "car: undone, and the run is completed"},
		"an undo that is missing": {func(t *testing.T, b *book) {
			b.drop(kindUndo, b.of(t, "trip", state.StatusFailed).Key+"/car/compensate")
		}, "has happened and was not undone"},
		"an undo that the ledger does not know": {func(t *testing.T, b *book) {
			key := b.of(t, "trip", state.StatusFailed).Key
			b.drop(kindUndo, key+"/car/compensate")
			b.drop(kindDo, key+"/car")
		}, "car: recorded as undone, and the ledger knows of no undo"},
		"an undo that is not recorded": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusFailed)
			rec.Steps[rec.StepIndex("car")].Status = state.StepDone
		}, "car: DONE in a failed run"},
		"an undo that is not declared": {func(t *testing.T, b *book) {
			rec := b.of(t, "order", state.StatusFailed)
			l := b.lines[b.at(t, kindUndo, rec.Key+"/reserve/compensate")]
			l.Step, l.Key, l.Of = "charge", rec.Key+"/charge/compensate", rec.Key+"/charge"
			b.lines = append(b.lines, l)
		}, "charge: PENDING, and its undo was called"},
		"undos in the wrong order": {func(t *testing.T, b *book) {
			key := b.of(t, "trip", state.StatusFailed).Key
			i, j := b.at(t, kindUndo, key+"/flight/compensate"), b.at(t, kindUndo, key+"/hotel/compensate")
			b.lines[i].At, b.lines[j].At = b.lines[j].At, b.lines[i].At
		}, "undone before a later step was"},
		"an undo of what can't have happened": {func(t *testing.T, b *book) {
			b.drop(kindDo, b.of(t, "trip", state.StatusFailed).Key+"/hotel")
		}, "hotel: undone, and it can't have happened"},
		"an undo of something else": {func(t *testing.T, b *book) {
			key := b.of(t, "trip", state.StatusFailed).Key + "/car/compensate"
			for i, l := range b.lines {
				if l.Kind == kindUndo && l.Key == key {
					b.lines[i].Body = undoBody(true, "car-0")
				}
			}
		}, `car: "undo car-0" was asked for`},
		"a call after the turn": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusFailed)
			b.lines[b.at(t, kindDo, rec.Key+"/car")].Sent = time.Now().Add(b.stall() + time.Second)
		}, "car: called when the run had turned round"},
		"a second call of at most one": {func(t *testing.T, b *book) {
			l := b.lines[b.at(t, kindDo, b.of(t, "transfer", state.StatusCompleted).Key+"/send")]
			b.lines = append(b.lines, l, l, l)
		}, "send: called"},
		"a run that was blocked without need": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusCompleted)
			rec.Audit = append(rec.Audit, state.AuditEntry{Verb: "retry"})
		}, "has no step that may block it"},
		"a message that has not arrived": {func(t *testing.T, b *book) {
			b.drop(kindMessage, b.of(t, "order", state.StatusCompleted).Key+"/ship/0")
		}, "/ship/0 has not arrived"},
		"a message that nobody was ever sure of": {func(t *testing.T, b *book) {
			key := b.of(t, "order", state.StatusCompleted).Key + "/ship/0"
			for i, l := range b.lines {
				if l.Key == key {
					b.lines[i].Answer = answerBusy
				}
			}
		}, "/ship/0 has not arrived"},
		"a message that was never sent": {func(t *testing.T, b *book) {
			rec := b.of(t, "order", state.StatusCompleted)
			rec.Outbox.Messages = append(rec.Outbox.Messages, state.OutboxMessage{})
		}, "1 messages were never sent"},
		"a message of a step that is not recorded": {func(t *testing.T, b *book) {
			rec := b.of(t, "trip", state.StatusFailed)
			rec.Steps[0].Output = nil
		}, "/hotel/0 has arrived, and its step is not recorded"},
		"a message under another ID": {func(t *testing.T, b *book) {
			i := b.at(t, kindMessage, b.of(t, "order", state.StatusCompleted).Key+"/ship/0")
			l := b.lines[i]
			l.Key = strings.TrimSuffix(l.Key, "0") + "1"
			b.lines = append(b.lines, l)
		}, "/ship/1 has arrived"},
		"a message that says something else": {func(t *testing.T, b *book) {
			key := b.of(t, "order", state.StatusCompleted).Key + "/ship/0"
			for i, l := range b.lines {
				if l.Key == key {
					b.lines[i].Body = newsBody("ship", "ship-0")
				}
			}
		}, "/ship/0 says"},
		"copies of a message that differ": {func(t *testing.T, b *book) {
			l := b.lines[b.at(t, kindMessage, b.of(t, "order", state.StatusCompleted).Key+"/ship/0")]
			l.Body += "!"
			b.lines = append(b.lines, l)
		}, "two calls under one key"},
	} {
		t.Run(name, func(t *testing.T) {
			b := goodBook(t)
			c.doctor(t, &b)
			found := reconcile(b)
			assert.Contains(t, strings.Join(found, "\n"), c.found)
		})
	}
}

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// errDeath stands for the death of the process: nothing that it does afterwards reaches the store.
var errDeath = errors.New("the process dies")

var (
	errTransient = errors.New("no answer")
	errPermanent = steps.Permanent(steps.WithCode("refused", errors.New("refused for good")))
)

// order is the input of the sagas. What is stored depends on these names.
type order struct {
	No   string `json:"no"`
	Note string `json:"note,omitempty"`
}

type run = steps.Run[order]

// world is what the steps call, and what goes wrong there, by the phase and the step, such as "do c".
type world struct {
	trouble map[string]error
	calls   []string
	dead    atomic.Bool
}

func (w *world) call(what string) error {
	w.calls = append(w.calls, what)
	phase, _, _ := strings.Cut(what, ":")
	err := w.trouble[phase]
	if errors.Is(err, errDeath) {
		w.dead.Store(true)
	}
	return err
}

// mortal is the store of a process that may be dead.
type mortal struct {
	state.Store
	w *world
}

func (m *mortal) Commit(ctx context.Context, ch *state.Change) error {
	if m.w.dead.Load() {
		return errDeath
	}
	return m.Store.Commit(ctx, ch)
}

// output is what a step answers: short, or too long for a header that is to stay small.
func output(step string, in order) string {
	if in.Note == "" {
		return step + " of " + in.No
	}
	return step + strings.Repeat(" is long", 300)
}

func (w *world) step(name string) *steps.Step[order, string] {
	return steps.New(name, func(_ context.Context, r *run) (string, error) {
		if err := w.call(fmt.Sprintf("do %s: attempt %d", name, r.Attempt())); err != nil {
			return "", err
		}
		return output(name, r.Input), nil
	}).Compensate(func(_ context.Context, r *run, did steps.Outcome[string]) error {
		what := "undo " + name + ": "
		switch {
		case !did.Known:
			what += "by its key"
		case did.Output == output(name, r.Input):
			what += "by its result"
		default:
			what += "by a wrong result"
		}
		return w.call(what)
	})
}

// shipment has four steps that can be undone; the second emits a message, forward and back.
func shipment(w *world) *saga.Definition[order, string] {
	a, c, d := w.step("a"), w.step("c"), w.step("d")
	b := steps.New("b", func(_ context.Context, r *run) (string, error) {
		if err := w.call(fmt.Sprintf("do b: attempt %d", r.Attempt())); err != nil {
			return "", err
		}
		r.Emit(outbox.Message{Topic: "news", Key: r.Input.No, Type: "b.done", Body: a.Output(r), Attributes: map[string]string{"no": r.Input.No}})
		return output("b", r.Input), nil
	}).Compensate(func(_ context.Context, r *run, did steps.Outcome[string]) error {
		r.Emit(outbox.Message{Topic: "news", Key: r.Input.No, Type: "b.undone", Body: []byte("undone")})
		return w.call(fmt.Sprintf("undo b: known %t", did.Known))
	})
	return saga.Define("shipment", func(_ context.Context, r *run) (string, error) {
		return fmt.Sprint(len(a.Output(r)+b.Output(r)+c.Output(r)), " and ", len(d.Output(r))), nil
	}, a, b, c, d)
}

// payout has a step that is called at most once and can't be asked about, and a pivot behind it.
func payout(w *world) *saga.Definition[order, string] {
	hold := w.step("hold")
	pay := w.step("pay").AtMostOnce()
	book := w.step("book").Pivot()
	tell := w.step("tell")
	return saga.Define("payout", func(_ context.Context, r *run) (string, error) { return tell.Output(r), nil }, hold, pay, book, tell)
}

func (w *world) definition(operation string) *saga.Definition[order, string] {
	if operation == "payout" {
		return payout(w)
	}
	return shipment(w)
}

// ids are the last parts of the messages' IDs.
func ids(msgs []outbox.Message) []string {
	var out []string
	for _, m := range msgs {
		_, rest, _ := strings.Cut(m.ID, "/")
		out = append(out, rest)
	}
	slices.Sort(out)
	return out
}

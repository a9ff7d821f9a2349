package killlab

import (
	"context"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// task is the input of every saga here.
type task struct {
	No int `json:"no"`
	// Declines: the participant refuses the step that may be declined.
	Declines bool `json:"declines"`
	// Extras: the steps with a condition are run.
	Extras bool `json:"extras"`
}

// stepSpec is how a step is declared, for the sagas and for those who check them.
type stepSpec struct {
	name       string
	undone     bool // it has a compensation
	declines   bool // it fails for good when the task says so
	extra      bool // it is left out unless the task wants extras
	pivot      bool
	probed     bool
	atMostOnce bool
	news       bool // it emits a message
	undoNews   bool // its compensation does
}

// sagaSpec is a saga.
type sagaSpec struct {
	name  string
	steps []stepSpec
}

var specs = []sagaSpec{
	{"trip", []stepSpec{
		{name: "hotel", undone: true, news: true},
		{name: "flight", undone: true, probed: true},
		{name: "insurance", undone: true, extra: true},
		{name: "car", undone: true, undoNews: true},
		{name: "pay", undone: true, declines: true},
	}},
	{"order", []stepSpec{
		{name: "reserve", undone: true},
		{name: "charge", pivot: true, probed: true, declines: true, news: true},
		{name: "wrap", extra: true},
		{name: "ship", news: true},
	}},
	{"transfer", []stepSpec{
		{name: "debit", undone: true},
		{name: "send", undone: true, atMostOnce: true, probed: true, news: true},
		{name: "book", undone: true, declines: true},
	}},
}

func (s sagaSpec) step(name string) (stepSpec, bool) {
	for _, st := range s.steps {
		if st.name == name {
			return st, true
		}
	}
	return stepSpec{}, false
}

// taskOf is what run no is to do, and by which saga. Any process can tell.
func taskOf(no int) (sagaSpec, saga.Key, task) {
	spec := specs[no%len(specs)]
	round := no / len(specs)
	return spec, saga.Key{Tenant: "lab", Operation: spec.name, ID: fmt.Sprintf("run-%d", no)},
		task{No: no, Declines: round%3 == 1, Extras: round%2 == 0}
}

// outside is what the sagas call.
type outside interface {
	do(ctx context.Context, c call) (id string, err error)
	undo(ctx context.Context, c call) error
	probe(ctx context.Context, c call) (id string, found bool, err error)
}

type run = steps.Run[task]

// bodyOf is the content of a step's call: with the answer to the last one before it, so that a result which is lost or
// mixed up on its way through the record shows in the calls.
func bodyOf(in task, step, before string) string {
	return fmt.Sprintf("%s of %d after %q, declines: %t", step, in.No, before, in.Declines)
}

func undoBody(known bool, id string) string {
	if known {
		return "undo " + id
	}
	return "undo by key"
}

func newsBody(step, id string) string { return step + " is " + id }

func undoNewsBody(step string) string { return step + " is undone" }

// definition declares the saga on the outside world.
func (s sagaSpec) definition(w outside) *saga.Definition[task, []string] {
	var made []*steps.Step[task, string]
	var declared []steps.Declared[task]
	for i, sp := range s.steps {
		before := made[:i:i]
		st := sp.declare(w, func(r *run) string {
			last := ""
			for _, b := range before {
				if id, ok := b.Lookup(r); ok {
					last = id
				}
			}
			return last
		})
		made, declared = append(made, st), append(declared, st)
	}
	return saga.Define(s.name, func(_ context.Context, r *run) ([]string, error) {
		ids := []string{}
		for _, st := range made {
			if id, ok := st.Lookup(r); ok {
				ids = append(ids, id)
			}
		}
		return ids, nil
	}, declared...)
}

func (sp stepSpec) declare(w outside, before func(*run) string) *steps.Step[task, string] {
	emit := func(r *run, body string) { r.Emit(outbox.Message{Topic: "news", Body: []byte(body)}) }
	st := steps.New(sp.name, func(ctx context.Context, r *run) (string, error) {
		id, err := w.do(ctx, call{Kind: kindDo, Run: runKey(r), Step: sp.name, Key: r.IdempotencyKey(), Of: r.IdempotencyKey(),
			Body: bodyOf(r.Input, sp.name, before(r)), Declines: sp.declines && r.Input.Declines})
		if err == nil && sp.news {
			emit(r, newsBody(sp.name, id))
		}
		return id, err
	})
	if sp.undone {
		st.Compensate(func(ctx context.Context, r *run, did steps.Outcome[string]) error {
			err := w.undo(ctx, call{Kind: kindUndo, Run: runKey(r), Step: sp.name, Key: r.IdempotencyKey(), Of: did.Key.String(),
				Body: undoBody(did.Known, did.Output)})
			if err == nil && sp.undoNews {
				emit(r, undoNewsBody(sp.name))
			}
			return err
		})
	}
	if sp.probed {
		st.Probe(func(ctx context.Context, r *run) (string, bool, error) {
			id, found, err := w.probe(ctx, call{Kind: kindProbe, Run: runKey(r), Step: sp.name, Key: r.IdempotencyKey(), Of: r.IdempotencyKey()})
			if found && sp.news {
				emit(r, newsBody(sp.name, id))
			}
			return id, found, err
		})
	}
	if sp.extra {
		st.When(func(r *run) bool { return r.Input.Extras })
	}
	if sp.pivot {
		st.Pivot()
	}
	if sp.atMostOnce {
		st.AtMostOnce()
	}
	return st
}

func runKey(r *run) string {
	key, err := r.Key().Encode()
	if err != nil {
		return err.Error()
	}
	return key
}

package sagatest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// ErrKeyClosed is what [Recorder.Effect] answers for a key that [Recorder.Undo] has made unusable. It is permanent.
var ErrKeyClosed = errors.New("sagatest: the key was made unusable by an undo")

// Recorder is the outside world of one run under [Crash]: what the steps' calls reach. It outlives the processes that die,
// so a constructor must keep its participants' state in it (with Effect, Undo and [World]) and nowhere else. It honours
// idempotency keys, and its answers depend on the key alone. Outside of the lab the zero value is a participant without
// faults. Its methods may be called concurrently.
type Recorder struct {
	lab recorderLab

	mu      sync.Mutex
	effects map[string]*effect // by key
	closed  map[string]bool
	worlds  map[reflect.Type]any
}

// recorderLab is how the lab takes part in calls; nil outside of it.
type recorderLab interface {
	// call is asked before and after a call, and returns what the caller gets in place of an answer.
	call(ctx context.Context, after bool) error
	// noted is told what the call was. content is nil where it does not matter.
	noted(ctx context.Context, key string, content any)
	wrong(ctx context.Context, format string, args ...any)
	now() time.Time
}

// effect is something that stands in the outside world, or stood.
type effect struct {
	key, id, step string
	undone        bool
}

const effectPrefix = "effect-"

// Call notes a call to a participant of your own: its idempotency key, and all that it is sent. A caller returns the
// error, if there is one, as it would its client's: the call was not made then, or its answer was lost.
//
// Call before the participant is called; the lab then dies before and after this point. What is noted under one key must
// be the same each time.
func (r *Recorder) Call(ctx context.Context, key string, content any) error {
	return r.through(ctx, key, content, func() error { return nil })
}

// Effect is a call that has an effect outside, at most one for a key. The id that it answers is the same each time. After
// [Recorder.Undo] of the key or the id it is refused with [ErrKeyClosed]. ctx must be the one that the step was given.
func (r *Recorder) Effect(ctx context.Context, key string, content any) (id string, err error) {
	err = r.through(ctx, key, content, func() error {
		if r.closed[key] {
			return steps.Permanent(fmt.Errorf("%w: %s", ErrKeyClosed, key))
		}
		if r.effects[key] == nil {
			if r.effects == nil {
				r.effects = map[string]*effect{}
			}
			step, _ := stepOf(ctx)
			r.effects[key] = &effect{key: key, id: effectPrefix + digest.Short(key, 16), step: step}
		}
		id = r.effects[key].id
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// Undo undoes an effect, named by its id or by the key that its call carried, and makes that key unusable, so that a call
// that is still under way has no effect. A key under which nothing has happened is made unusable all the same. key is the
// undo's own.
func (r *Recorder) Undo(ctx context.Context, key, of string) error {
	return r.through(ctx, key, undoOf(of), func() error {
		e := r.find(of)
		switch {
		case e != nil:
			e.undone = true
			of = e.key
		case of == "" || strings.HasPrefix(of, effectPrefix):
			r.wrongUndo(ctx, of)
			return steps.Permanent(fmt.Errorf("sagatest: there is nothing to undo under %q", of))
		}
		if r.closed == nil {
			r.closed = map[string]bool{}
		}
		r.closed[of] = true
		return nil
	})
}

// undoOf is the content of an undo. What it names may differ: the id where it is known, else the key.
type undoOf string

func (r *Recorder) wrongUndo(ctx context.Context, of string) {
	if r.lab == nil {
		return
	}
	step, known := stepOf(ctx)
	if !known {
		r.lab.wrong(ctx, "the compensation of %s was called while nobody knows whether the step happened (Known == false), and asked to undo %q; "+
			"look at did.Known before did.Output, and without it undo by the key of the step's call, did.Key", step, of)
		return
	}
	r.lab.wrong(ctx, "the compensation of %s asked to undo %q, which never happened", step, of)
}

// Happened is what a probe asks: whether the call under this key had its effect, and the id that it answered.
func (r *Recorder) Happened(ctx context.Context, key string) (id string, ok bool, err error) {
	err = r.through(ctx, key, nil, func() error {
		if e := r.effects[key]; e != nil && !e.undone {
			id, ok = e.id, true
		}
		return nil
	})
	return id, ok && err == nil, err
}

// Now is the time in the outside world. Under [Crash] it moves on by more than a day between runs, so that a step that
// reads a clock into its call is found out.
func (r *Recorder) Now() time.Time {
	if r.lab == nil {
		return time.Now()
	}
	return r.lab.now()
}

// World is the participant of type T of this run's outside world, made when it is first asked for: for fakes of your own,
// whose state must outlive the process that dies.
func World[T any](r *Recorder, newWorld func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := reflect.TypeFor[T]()
	if w, ok := r.worlds[of].(T); ok {
		return w
	}
	if r.worlds == nil {
		r.worlds = map[reflect.Type]any{}
	}
	w := newWorld()
	r.worlds[of] = w
	return w
}

// through makes one call, by the lab's script. do is called with the lock held.
func (r *Recorder) through(ctx context.Context, key string, content any, do func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if r.lab != nil {
		if err := r.lab.call(ctx, false); err != nil {
			return err
		}
		if content != nil {
			r.lab.noted(ctx, key, content)
		}
	}
	r.mu.Lock()
	err := do()
	r.mu.Unlock()
	if r.lab != nil {
		if lost := r.lab.call(ctx, true); lost != nil {
			return lost
		}
	}
	return err
}

// find is the effect with this id or key; nil when there is none.
func (r *Recorder) find(of string) *effect {
	for _, e := range r.effects {
		if e.key == of || e.id == of {
			return e
		}
	}
	return nil
}

// standing are the effects so far.
func (r *Recorder) all() (out []effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.effects {
		out = append(out, *e)
	}
	return out
}

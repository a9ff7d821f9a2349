package sagalambda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/absent"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// item is one record of an event.
type item[In any] struct {
	id    string
	group string // records of one group keep their order; empty: no order
	event any
	make  func() (saga.Key, In, error)

	made bool // key and input are there
	key  saga.Key
	in   In
	err  error // nil: acknowledged
}

// errNotRun is what came of a record until something has: only what has run is ever acknowledged.
var errNotRun = errors.New("sagalambda: not run")

// handler runs the records of events.
type handler[In, Out any] struct {
	c      *config
	runner *bounded[In, Out]
}

func newHandler[In, Out any](runner saga.Runner[In, Out], request bool, opts []Option) *handler[In, Out] {
	c := newConfig(opts)
	c.check(!absent.Is(runner), request)
	return &handler[In, Out]{c, &bounded[In, Out]{c, runner}}
}

// all runs the records of an event, and leaves in each what came of it.
func (h *handler[In, Out]) all(ctx context.Context, items []item[In]) {
	for i := range items {
		h.prepare(&items[i])
	}
	todo := make(chan []*item[In])
	var workers sync.WaitGroup
	lanes := lanesOf(items)
	for range min(h.c.concurrency, len(lanes)) {
		workers.Go(func() {
			for lane := range todo {
				h.lane(ctx, lane)
			}
		})
	}
	for _, lane := range lanes {
		todo <- lane
	}
	close(todo)
	workers.Wait()
}

// prepare makes the record's key and input.
func (h *handler[In, Out]) prepare(it *item[In]) {
	it.err = errNotRun
	err := called("the function that makes the key and the input", func() (err error) {
		it.key, it.in, err = it.make()
		return err
	})
	if err != nil {
		h.c.told("record_panic", err, zap.String("record", it.id))
		it.key, it.err = saga.Key{}, &MalformedError{ID: it.id, Err: err}
		return
	}
	it.made = true
}

// lane runs records one after the other. Behind one that is to be delivered again, those of its group and of its key are
// held back: they would overtake it, or try again at once what has just stopped.
func (h *handler[In, Out]) lane(ctx context.Context, lane []*item[In]) {
	groups, keys := map[string]bool{}, map[saga.Key]bool{}
	for _, it := range lane {
		switch {
		case it.group != "" && groups[it.group], it.made && keys[it.key]:
			it.err = errHeld
		case it.made:
			_, it.err = h.runner.guarded(ctx, it.key, it.in)
		}
		stopped := it.err != nil && !ownFault(it.err)
		it.err = h.c.settle(ctx, Record{ID: it.id, Event: it.event, Key: it.key, Err: it.err})
		if it.err != nil {
			groups[it.group] = true
			keys[it.key] = keys[it.key] || stopped
		}
	}
}

// ownFault tells whether an error is about the record, so that another one with the same key may fare better.
func ownFault(err error) bool {
	var malformed *MalformedError
	if errors.As(err, &malformed) {
		return true
	}
	kind := kindOf(err)
	for _, own := range []error{saga.ErrPayloadMismatch, saga.ErrInvalidInput, saga.ErrInvalidKey, saga.ErrTooLarge} {
		if errors.Is(kind, own) {
			return true
		}
	}
	return false
}

// lanesOf divides the records into those that may run at once: records of one group, or with one key, share a lane, in
// their order.
func lanesOf[In any](items []item[In]) [][]*item[In] {
	lane := make([]int, len(items)) // the lane's first record, or one nearer to it
	root := func(i int) int {
		for lane[i] != i {
			lane[i] = lane[lane[i]]
			i = lane[i]
		}
		return i
	}
	groups, keys := map[string]int{}, map[saga.Key]int{}
	for i := range items {
		lane[i] = i
		if it := &items[i]; it.made {
			join(keys, it.key, i, lane, root)
		}
		if items[i].group != "" {
			join(groups, items[i].group, i, lane, root)
		}
	}
	var out [][]*item[In]
	at := map[int]int{}
	for i := range items {
		r := root(i)
		n, ok := at[r]
		if !ok {
			n = len(out)
			at[r] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], &items[i])
	}
	return out
}

// join puts record i into the lane of the one that had the same name before.
func join[K comparable](seen map[K]int, name K, i int, lane []int, root func(int) int) {
	before, ok := seen[name]
	if !ok {
		seen[name] = i
		return
	}
	a, b := root(before), root(i)
	lane[max(a, b)] = min(a, b)
}

// answer is the error of the event as a whole, when which records failed can't be told, or must not be.
func (c *config) answer(failed, all int, nameless bool) error {
	switch {
	case failed == 0:
		return nil
	case nameless:
		return fmt.Errorf("sagalambda: %d of %d records are to be delivered again, and one of them has no ID by which to say so", failed, all)
	case c.wholeEvent:
		return fmt.Errorf("sagalambda: %d of %d records are to be delivered again", failed, all)
	}
	return nil
}

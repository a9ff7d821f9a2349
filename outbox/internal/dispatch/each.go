package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// guarded makes a panic of one, which may call a user's function, the failure of that message: nobody else would catch it.
func guarded[T any](ctx context.Context, e Entry[T], one func(context.Context, Entry[T]) (*Failure, bool)) (f *Failure, whole bool) {
	defer func() {
		if p := recover(); p != nil {
			f, whole = &Failure{Err: fmt.Errorf("outbox: the publisher panics: %v", p)}, false
		}
	}()
	return one(ctx, e)
}

// Each sends one message at a time within a lane, and several lanes at the same time. one returns nil for a message that
// was accepted; whole means that its failure is the broker's, so that nothing more is tried, and is the error of Each.
func Each[T any](ctx context.Context, entries []Entry[T], concurrency int, one func(context.Context, Entry[T]) (f *Failure, whole bool)) ([]outbox.Result, error) {
	var order []string
	lanes := map[string][]Entry[T]{}
	for _, e := range entries {
		if lanes[e.Lane] == nil {
			order = append(order, e.Lane)
		}
		lanes[e.Lane] = append(lanes[e.Lane], e)
	}
	var mu sync.Mutex
	var results []outbox.Result
	var down error
	add := func(e Entry[T], f *Failure, whole bool) (goOn bool) {
		mu.Lock()
		defer mu.Unlock()
		if whole {
			down = errors.Join(down, f.Err)
			return false
		}
		res := outbox.Result{ID: e.ID}
		if f != nil {
			res.Err, res.Refused = f.Err, f.Refused
		}
		results = append(results, res)
		return f == nil
	}
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return down != nil
	}
	runLane := func(lane []Entry[T]) {
		for i, e := range lane {
			if stopped() {
				return
			}
			f, whole := &Failure{Err: e.Err, Refused: true}, false
			if e.Err == nil {
				f, whole = guarded(ctx, e, one)
			}
			if !add(e, f, whole) {
				for _, behind := range lane[i+1:] {
					add(behind, &Failure{Err: outbox.ErrHeldBack}, false)
				}
				return
			}
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	for _, name := range order {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			runLane(lanes[name])
		})
	}
	wg.Wait()
	return results, down
}

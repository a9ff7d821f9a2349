package killlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

const (
	atOnce      = 3 // jobs that a worker works on
	lookForJobs = 15 * time.Millisecond
)

// pace is how fast it goes on a store.
type pace struct {
	lease   time.Duration // short, so that the work of the dead is soon taken over
	recover time.Duration // between two looks for it
	poll    time.Duration // at least, between two looks for messages
	life    time.Duration // of a worker, on average
}

// paces: a look at DynamoDB is a query for each shard of the index, and the server for tests has one thread.
var paces = map[string]pace{
	onSQLite: {400 * time.Millisecond, 60 * time.Millisecond, 20 * time.Millisecond, 150 * time.Millisecond},
	onDynamo: {600 * time.Millisecond, 600 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond},
}

type orchestrator = saga.Orchestrator[task, []string]

// beWorker works until its standard input ends, or it is killed: it runs what the queue hands out, recovers what others
// have left, and relays messages.
func beWorker(to told) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	store, closed, err := openStore(ctx, to.Store, to.Place)
	if err != nil {
		return err
	}
	w := &worker{pace: paces[to.Store], ledger: newClient(to.Ledger, to.Worker), sagas: map[string]*orchestrator{}}
	if err := w.prepare(store); err != nil {
		return errors.Join(err, closed())
	}
	fmt.Println("ready")
	w.work(ctx)
	return closed()
}

type worker struct {
	pace   pace
	ledger *client
	relay  *outbox.Relay
	sagas  map[string]*orchestrator
}

func (w *worker) prepare(store state.Store) (err error) {
	w.relay, err = outbox.NewRelay(store, w.ledger, outbox.WithLease(w.pace.lease), outbox.WithPoll(w.pace.poll, 4*w.pace.poll),
		outbox.WithBackoff(5*time.Millisecond, 40*time.Millisecond), outbox.WithGrace(time.Second))
	if err != nil {
		return err
	}
	for _, s := range specs {
		w.sagas[s.name], err = saga.New(s.definition(w.ledger), store, saga.WithLease(w.pace.lease), saga.WithRelay(w.relay),
			saga.WithRetry(steps.RetryPolicy{Initial: 3 * time.Millisecond, Max: 10 * time.Millisecond, PerRun: 2}))
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) work(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.relay.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	var all []saga.Recoverable
	for _, o := range w.sagas {
		all = append(all, o)
	}
	wg.Go(func() { _ = saga.RecoverLoop(ctx, w.pace.recover, all...) })
	for range atOnce {
		wg.Go(func() {
			for ctx.Err() == nil {
				if !w.one(ctx) {
					time.Sleep(lookForJobs)
				}
			}
		})
	}
	wg.Wait()
}

// one works on one job; false: there is none, or not for now.
func (w *worker) one(ctx context.Context) bool {
	no := -1
	if err := w.ledger.ask(ctx, "/job", nil, &no); err != nil || no < 0 {
		return false
	}
	spec, key, in := taskOf(no)
	_, err := w.sagas[spec.name].Run(ctx, key, in)
	rep := report{No: no}
	switch {
	case err == nil, errors.Is(err, saga.ErrFailed):
	case errors.Is(err, saga.ErrBlocked):
		rep.Blocked = true
	case errors.Is(err, saga.ErrInProgress), errors.Is(err, saga.ErrInterrupted), errors.Is(err, saga.ErrLeaseLost), errors.Is(err, saga.ErrStore):
		return true // the queue hands it out again
	default:
		fmt.Fprintln(os.Stderr, "run", no, err) // it stays open, and so the test fails
		return true
	}
	var ok bool
	return w.ledger.ask(ctx, "/report", rep, &ok) == nil
}

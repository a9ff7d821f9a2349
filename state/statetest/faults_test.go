package statetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

// faulty is a correct store with some of its methods replaced by ones that have a fault.
type faulty struct {
	state.Store
	create        func(context.Context, *state.Record) (*state.Record, error)
	commit        func(context.Context, *state.Change) error
	requestCancel func(context.Context, string, state.CancelRequest) error
	get           func(context.Context, string) (*state.Record, error)
	list          func(context.Context, state.Query) (state.Page, error)
	remove        func(context.Context, string) error
	claim         func(context.Context, int, time.Duration) ([]outbox.Batch, error)
	sent          func(context.Context, outbox.Batch, []string) error
	park          func(context.Context, outbox.Batch, string, string) error
	unpark        func(context.Context, string, bool, string) error
	capabilities  state.Capabilities
}

// broken is a store with the fault that f puts in; f is given the correct store too.
func broken(f func(b *faulty, good state.Store)) func() state.Store {
	return func() state.Store {
		good := state.Store(memory.New())
		b := &faulty{
			Store: good, create: good.Create, commit: good.Commit, requestCancel: good.RequestCancel, get: good.Get, list: good.List, remove: good.Delete,
			claim: good.Claim, sent: good.Sent, park: good.Park, unpark: good.Unpark, capabilities: good.Capabilities(),
		}
		f(b, good)
		return b
	}
}

func (b *faulty) Create(ctx context.Context, rec *state.Record) (*state.Record, error) {
	return b.create(ctx, rec)
}
func (b *faulty) Commit(ctx context.Context, ch *state.Change) error { return b.commit(ctx, ch) }
func (b *faulty) RequestCancel(ctx context.Context, key string, req state.CancelRequest) error {
	return b.requestCancel(ctx, key, req)
}
func (b *faulty) Get(ctx context.Context, key string) (*state.Record, error) { return b.get(ctx, key) }
func (b *faulty) List(ctx context.Context, q state.Query) (state.Page, error) {
	return b.list(ctx, q)
}
func (b *faulty) Delete(ctx context.Context, key string) error { return b.remove(ctx, key) }
func (b *faulty) Claim(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
	return b.claim(ctx, limit, lease)
}
func (b *faulty) Sent(ctx context.Context, batch outbox.Batch, ids []string) error {
	return b.sent(ctx, batch, ids)
}
func (b *faulty) Park(ctx context.Context, batch outbox.Batch, id, reason string) error {
	return b.park(ctx, batch, id, reason)
}
func (b *faulty) Unpark(ctx context.Context, id string, resend bool, note string) error {
	return b.unpark(ctx, id, resend, note)
}
func (b *faulty) Capabilities() state.Capabilities { return b.capabilities }

// onCommit is the fault of a Commit that changes what it is given.
func onCommit(spoil func(ch *state.Change, current *state.Record)) func() state.Store {
	return broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			c := *ch
			if current, err := good.Get(ctx, ch.Key); err == nil {
				spoil(&c, current)
			}
			return good.Commit(ctx, &c)
		}
	})
}

// onRead is the fault of a store that gives back something else than what it holds, wherever it gives a record.
func onRead(spoil func(rec *state.Record)) func() state.Store {
	return broken(func(b *faulty, good state.Store) {
		b.get = func(ctx context.Context, key string) (*state.Record, error) {
			rec, err := good.Get(ctx, key)
			if err == nil {
				spoil(rec)
			}
			return rec, err
		}
	})
}

func pause() { time.Sleep(2 * time.Millisecond) }

// rewrite replaces the stored record, as only a faulty store would.
func rewrite(ctx context.Context, good state.Store, key string, spoil func(rec *state.Record)) error {
	rec, err := good.Get(ctx, key)
	if err != nil {
		return err
	}
	spoil(rec)
	_ = good.Delete(ctx, key)
	_, err = good.Create(ctx, rec)
	return err
}

// faults are stores that must not pass, by the part of the suite that must see it.
var faults = map[string]struct {
	part string
	open func() state.Store
}{
	"Create overwrites": {"create", broken(func(b *faulty, good state.Store) {
		b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
			_ = good.Delete(ctx, rec.Key)
			return good.Create(ctx, rec)
		}
	})},
	"Create looks first": {"races", broken(func(b *faulty, good state.Store) {
		b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
			if existing, err := good.Get(ctx, rec.Key); err == nil {
				return existing, nil
			}
			pause()
			_ = good.Delete(ctx, rec.Key)
			return good.Create(ctx, rec)
		}
	})},
	"Create returns what was given": {"create", broken(func(b *faulty, good state.Store) {
		b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
			existing, err := good.Create(ctx, rec)
			if existing != nil {
				existing = rec
			}
			return existing, err
		}
	})},
	"the owner is no fence":    {"fence", onCommit(func(ch *state.Change, current *state.Record) { ch.IfOwner = current.Owner })},
	"the revision is no fence": {"fence", onCommit(func(ch *state.Change, current *state.Record) { ch.IfRevision = current.Revision })},
	"a cancel is no fence":     {"fence", onCommit(func(ch *state.Change, _ *state.Record) { ch.IfNoCancel = false })},
	"a claim is no fence": {"fence", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			if ch.Claim == nil {
				return good.Commit(ctx, ch)
			}
			c := *ch
			c.Claim = nil
			return good.Commit(ctx, &c)
		}
	})},
	"the cancel is looked up first": {"cancel races", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			c := *ch
			if rec, err := good.Get(ctx, ch.Key); err == nil && ch.IfNoCancel && rec.Cancel == nil {
				pause()
				c.IfNoCancel = false
			}
			return good.Commit(ctx, &c)
		}
	})},
	"the pivot is looked up first": {"cancel races", broken(func(b *faulty, good state.Store) {
		b.requestCancel = func(ctx context.Context, key string, req state.CancelRequest) error {
			rec, err := good.Get(ctx, key)
			if err != nil {
				return err
			}
			if _, err := rec.CheckCancel(); err != nil {
				return err
			}
			pause()
			return rewrite(ctx, good, key, func(rec *state.Record) { rec.Cancel = &req })
		}
	})},
	"Commit reads, then writes": {"races", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			rec, err := good.Get(ctx, ch.Key)
			if err != nil {
				return good.Commit(ctx, ch)
			}
			if err := ch.Apply(rec); err != nil {
				return err
			}
			pause()
			return rewrite(ctx, good, ch.Key, func(r *state.Record) { *r = *rec })
		}
	})},
	"a refused Commit without the record": {"fence", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			err := good.Commit(ctx, ch)
			if errors.Is(err, state.ErrConflict) {
				return &state.ConflictError{Key: ch.Key}
			}
			return err
		}
	})},
	"a Commit that makes a record": {"delete", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			err := good.Commit(ctx, ch)
			var refused *state.ConflictError
			if errors.As(err, &refused) && refused.Current == nil {
				_, err := good.Create(ctx, &state.Record{Key: ch.Key, Status: ch.Status, Revision: ch.IfRevision + 1})
				return err
			}
			return err
		}
	})},
	"an illegal transition is passed over": {"transitions", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			err := good.Commit(ctx, ch)
			if errors.Is(err, state.ErrTransition) {
				return nil
			}
			return err
		}
	})},
	"an illegal transition is made": {"transitions", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error {
			err := good.Commit(ctx, ch)
			if errors.Is(err, state.ErrTransition) {
				_ = rewrite(ctx, good, ch.Key, func(rec *state.Record) { rec.Status = ch.Status })
			}
			return err
		}
	})},
	"messages are dropped":         {"random", onCommit(func(ch *state.Change, _ *state.Record) { ch.Messages = nil })},
	"the audit is dropped":         {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.Audit = nil })},
	"the plan is dropped":          {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.Plan = nil })},
	"the pivot is kept":            {"fields", onCommit(func(ch *state.Change, r *state.Record) { ch.Pivot = r.Pivot })},
	"the response is dropped":      {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.Response = nil })},
	"a cleared failure stays":      {"fields", onCommit(func(ch *state.Change, r *state.Record) { ch.Failure = cmpOr(ch.Failure, r.Failure) })},
	"a cancel is never dropped":    {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.DropCancel = false })},
	"a cancel is always dropped":   {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.DropCancel = true })},
	"a claim clears what is there": {"random", onCommit(func(ch *state.Change, _ *state.Record) { ch.Claim = nil })},
	"the expiry is dropped":        {"expiry", onCommit(func(ch *state.Change, _ *state.Record) { ch.ExpiresAt = time.Time{} })},
	"only the first step":          {"fields", onCommit(func(ch *state.Change, _ *state.Record) { ch.Steps = ch.Steps[:min(1, len(ch.Steps))] })},

	"RequestCancel overwrites": {"cancel", broken(func(b *faulty, good state.Store) {
		b.requestCancel = func(ctx context.Context, key string, req state.CancelRequest) error {
			if err := good.RequestCancel(ctx, key, req); err != nil {
				return err
			}
			return rewrite(ctx, good, key, func(rec *state.Record) {
				if rec.Cancel != nil {
					rec.Cancel = &req
				}
			})
		}
	})},
	"RequestCancel raises the revision": {"cancel", broken(func(b *faulty, good state.Store) {
		b.requestCancel = func(ctx context.Context, key string, req state.CancelRequest) error {
			if err := good.RequestCancel(ctx, key, req); err != nil {
				return err
			}
			return rewrite(ctx, good, key, func(rec *state.Record) { rec.Revision++ })
		}
	})},
	"RequestCancel in every status": {"cancel", broken(func(b *faulty, good state.Store) {
		b.requestCancel = func(ctx context.Context, key string, req state.CancelRequest) error {
			if err := good.RequestCancel(ctx, key, req); !errors.Is(err, state.ErrNotAllowed) {
				return err
			}
			return rewrite(ctx, good, key, func(rec *state.Record) { rec.Cancel = &req })
		}
	})},
	"RequestCancel on a run that goes backwards": {"cancel", broken(func(b *faulty, good state.Store) {
		b.requestCancel = func(ctx context.Context, key string, req state.CancelRequest) error {
			if rec, err := good.Get(ctx, key); err == nil && rec.Status == state.StatusCompensating {
				return rewrite(ctx, good, key, func(rec *state.Record) { rec.Cancel = &req })
			}
			return good.RequestCancel(ctx, key, req)
		}
	})},
	"Delete leaves it": {"delete", broken(func(b *faulty, _ state.Store) { b.remove = func(context.Context, string) error { return nil } })},

	"payloads are compacted": {"payloads", onRead(func(rec *state.Record) {
		var b bytes.Buffer
		if json.Compact(&b, rec.Input) == nil {
			rec.Input = b.Bytes()
		}
	})},
	"numbers go through float64": {"payloads", onRead(func(rec *state.Record) {
		if f, err := strconv.ParseFloat(string(rec.Input), 64); err == nil {
			rec.Input, _ = json.Marshal(f)
		}
	})},
	"no output is null": {"payloads", onRead(func(rec *state.Record) {
		for i := range rec.Steps {
			if rec.Steps[i].Output == nil {
				rec.Steps[i].Output = json.RawMessage("null")
			}
		}
	})},
	"bodies are text": {"payloads", onRead(func(rec *state.Record) {
		for i, m := range rec.Outbox.Messages {
			rec.Outbox.Messages[i].Body = []byte(strings.ToValidUTF8(string(m.Bytes()), "\ufffd"))
		}
	})},
	"NUL ends a text": {"payloads", onRead(func(rec *state.Record) {
		if rec.Cancel != nil {
			rec.Cancel.Reason, _, _ = strings.Cut(rec.Cancel.Reason, "\x00")
		}
	})},
	"times are local":             {"times", onRead(func(rec *state.Record) { rec.CreatedAt = rec.CreatedAt.In(time.FixedZone("x", 3600)) })},
	"times are to the second":     {"times", onRead(func(rec *state.Record) { rec.UpdatedAt = rec.UpdatedAt.Truncate(time.Second) })},
	"an expired record is shown":  {"expiry", broken(showExpired)},
	"an expired record is in use": {"expiry", broken(keepExpired)},

	"keys are cut":        {"keys", keyed(func(k string) string { return k[:min(len(k), 255)] })},
	"keys are folded":     {"keys", keyed(strings.ToLower)},
	"keys are trimmed":    {"keys", keyed(strings.TrimSpace)},
	"an escape is undone": {"keys", keyed(func(k string) string { return strings.ReplaceAll(k, "%23", "#") })},
	"Delete takes all that begin": {"keys", broken(func(b *faulty, good state.Store) {
		b.remove = func(ctx context.Context, key string) error {
			page, err := good.List(ctx, state.Query{Limit: 1000})
			for _, rec := range page.Records {
				if strings.HasPrefix(rec.Key, key) {
					_ = good.Delete(ctx, rec.Key)
				}
			}
			return err
		}
	})},

	"List ignores the status":    {"list", onList(func(q *state.Query) { q.Statuses = nil })},
	"List ignores the operation": {"list", onList(func(q *state.Query) { q.Operation = "" })},
	"List ignores the lease":     {"list", onList(func(q *state.Query) { q.LapsedBefore = time.Time{} })},
	"List ignores the limit":     {"list", onList(func(q *state.Query) { q.Limit = 0 })},
	"List ignores the cursor":    {"list", onList(func(q *state.Query) { q.Cursor = "" })},
	"a cursor is an offset":      {"paging", broken(offsets)},
	"one page is all": {"list", broken(func(b *faulty, good state.Store) {
		b.list = func(ctx context.Context, q state.Query) (state.Page, error) {
			page, err := good.List(ctx, q)
			page.Next = ""
			return page, err
		}
	})},

	"what Get returns is shared": {"isolation", broken(func(b *faulty, good state.Store) {
		var mu sync.Mutex
		cache := map[string]*state.Record{}
		b.get = func(ctx context.Context, key string) (*state.Record, error) {
			rec, err := good.Get(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if c := cache[key]; err == nil && c != nil && c.Revision == rec.Revision {
				return c, nil
			}
			cache[key] = rec
			return rec, err
		}
	})},
	"the context is ignored": {"contexts", broken(func(b *faulty, good state.Store) {
		b.commit = func(ctx context.Context, ch *state.Change) error { return good.Commit(context.WithoutCancel(ctx), ch) }
	})},
	"the context is seen too late": {"contexts", broken(func(b *faulty, good state.Store) {
		b.sent = func(ctx context.Context, batch outbox.Batch, ids []string) error {
			return errors.Join(good.Sent(context.WithoutCancel(ctx), batch, ids), ctx.Err())
		}
	})},
	"a limit that isn't held": {"sizes", broken(func(b *faulty, _ state.Store) { b.capabilities.MaxValue = 1000 })},
	"a limit that is too low": {"sizes", broken(func(b *faulty, good state.Store) {
		b.capabilities.MaxRecord = 100_000
		b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
			if rec.Size() > 50_000 {
				return nil, state.ErrTooLarge
			}
			return good.Create(ctx, rec)
		}
	})},

	"a claim is no claim": {"outbox relays", broken(func(b *faulty, good state.Store) {
		b.claim = func(ctx context.Context, limit int, _ time.Duration) ([]outbox.Batch, error) {
			return good.Claim(ctx, limit, 0)
		}
	})},
	"any token will do": {"outbox fence", broken(func(b *faulty, good state.Store) {
		b.sent = func(ctx context.Context, batch outbox.Batch, ids []string) error {
			if rec, err := good.Get(ctx, batch.RunKey); err == nil {
				batch.Token = rec.Outbox.Token
			}
			return good.Sent(ctx, batch, ids)
		}
	})},
	"Sent removes the whole batch": {"outbox sent", broken(func(b *faulty, good state.Store) {
		b.sent = func(ctx context.Context, batch outbox.Batch, ids []string) error {
			for _, m := range batch.Messages {
				ids = append(ids, m.ID)
			}
			return good.Sent(ctx, batch, ids)
		}
	})},
	"Sent removes nothing": {"outbox order", broken(func(b *faulty, good state.Store) {
		b.sent = func(ctx context.Context, batch outbox.Batch, _ []string) error { return good.Sent(ctx, batch, nil) }
	})},
	"messages are out of order": {"outbox order", broken(func(b *faulty, good state.Store) {
		b.claim = func(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
			batches, err := good.Claim(ctx, limit, lease)
			for _, batch := range batches {
				slices.Reverse(batch.Messages)
			}
			return batches, err
		}
	})},
	"the limit is for runs": {"outbox limit", broken(func(b *faulty, good state.Store) {
		b.claim = func(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
			return good.Claim(ctx, 100*limit, lease)
		}
	})},
	"Claim raises the revision": {"outbox of a live run", broken(func(b *faulty, good state.Store) {
		b.claim = func(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
			batches, err := good.Claim(ctx, limit, lease)
			for _, batch := range batches {
				_ = rewrite(ctx, good, batch.RunKey, func(rec *state.Record) { rec.Revision++ })
			}
			return batches, err
		}
	})},
	"Sent gives no expiry": {"outbox settling", broken(func(b *faulty, good state.Store) {
		b.sent = func(ctx context.Context, batch outbox.Batch, ids []string) error {
			if err := good.Sent(ctx, batch, ids); err != nil {
				return err
			}
			return rewrite(ctx, good, batch.RunKey, func(rec *state.Record) { rec.ExpiresAt = time.Time{} })
		}
	})},
	"Claim closes nothing": {"outbox settling", broken(func(b *faulty, good state.Store) {
		b.claim = func(ctx context.Context, limit int, lease time.Duration) ([]outbox.Batch, error) {
			page, _ := good.List(ctx, state.Query{Statuses: []state.Status{state.StatusCompleted}})
			batches, err := good.Claim(ctx, limit, lease)
			for _, rec := range page.Records {
				_ = rewrite(ctx, good, rec.Key, func(r *state.Record) { r.ExpiresAt = rec.ExpiresAt })
			}
			return batches, err
		}
	})},
	"a parked message is dropped": {"outbox park", broken(func(b *faulty, good state.Store) {
		b.park = func(ctx context.Context, batch outbox.Batch, id, _ string) error {
			return good.Sent(ctx, batch, []string{id})
		}
	})},
	"Unpark is not audited": {"outbox park", broken(func(b *faulty, good state.Store) {
		b.unpark = func(ctx context.Context, id string, resend bool, note string) error {
			if err := good.Unpark(ctx, id, resend, note); err != nil {
				return err
			}
			key, _ := state.MessageRun(id)
			return rewrite(ctx, good, key, func(rec *state.Record) { rec.Audit = nil })
		}
	})},
	"Unpark always sends again": {"outbox park", broken(func(b *faulty, good state.Store) {
		b.unpark = func(ctx context.Context, id string, _ bool, note string) error {
			return good.Unpark(ctx, id, true, note)
		}
	})},
	"a claim by a commit counts for nothing": {"outbox claim by commit", onCommit(func(ch *state.Change, _ *state.Record) {
		if ch.Claim != nil {
			ch.Claim = &state.Claim{Token: ch.Claim.Token, Until: ch.UpdatedAt}
		}
	})},
}

func cmpOr(a, b *state.Failure) *state.Failure {
	if a != nil {
		return a
	}
	return b
}

func onList(spoil func(q *state.Query)) func() state.Store {
	return broken(func(b *faulty, good state.Store) {
		b.list = func(ctx context.Context, q state.Query) (state.Page, error) {
			spoil(&q)
			return good.List(ctx, q)
		}
	})
}

// keyed is a store that confuses keys.
func keyed(spoil func(string) string) func() state.Store {
	return broken(func(b *faulty, good state.Store) {
		b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
			c := rec.Clone()
			c.Key = spoil(c.Key)
			return good.Create(ctx, c)
		}
		b.commit = func(ctx context.Context, ch *state.Change) error {
			c := *ch
			c.Key = spoil(c.Key)
			return good.Commit(ctx, &c)
		}
		b.get = func(ctx context.Context, key string) (*state.Record, error) {
			rec, err := good.Get(ctx, spoil(key))
			if rec != nil {
				rec.Key = key
			}
			return rec, err
		}
	})
}

// showExpired gives expired records back until they are deleted.
func showExpired(b *faulty, good state.Store) {
	var mu sync.Mutex
	last := map[string]*state.Record{}
	b.commit = func(ctx context.Context, ch *state.Change) error {
		rec, _ := good.Get(ctx, ch.Key)
		err := good.Commit(ctx, ch)
		if err == nil && rec != nil {
			_ = ch.Apply(rec)
			mu.Lock()
			last[ch.Key] = rec
			mu.Unlock()
		}
		return err
	}
	b.get = func(ctx context.Context, key string) (*state.Record, error) {
		rec, err := good.Get(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && last[key] != nil {
			return last[key].Clone(), nil
		}
		return rec, err
	}
}

// keepExpired never lets a new record take the place of one that has expired.
func keepExpired(b *faulty, good state.Store) {
	var mu sync.Mutex
	taken := map[string]*state.Record{}
	b.create = func(ctx context.Context, rec *state.Record) (*state.Record, error) {
		mu.Lock()
		defer mu.Unlock()
		if t := taken[rec.Key]; t != nil {
			return t.Clone(), nil
		}
		taken[rec.Key] = rec.Clone()
		return good.Create(ctx, rec)
	}
}

// offsets pages by a number of records to pass over.
func offsets(b *faulty, good state.Store) {
	b.list = func(ctx context.Context, q state.Query) (state.Page, error) {
		from, err := strconv.Atoi(q.Cursor)
		if q.Cursor != "" && err != nil {
			return state.Page{}, err
		}
		all := map[string]*state.Record{}
		page, err := good.List(ctx, state.Query{Statuses: q.Statuses, Limit: 10_000})
		for _, rec := range page.Records {
			all[rec.Key] = rec
		}
		keys := slices.Sorted(maps.Keys(all))
		page = state.Page{}
		for i := from; i < len(keys) && len(page.Records) < q.Limit; i++ {
			page.Records = append(page.Records, all[keys[i]])
		}
		if from+q.Limit < len(keys) {
			page.Next = fmt.Sprint(from + q.Limit)
		}
		return page, err
	}
}

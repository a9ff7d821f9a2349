package dynamostore

import (
	"context"
	"fmt"
	"slices"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Get returns the record; see [state.Store]. When a payload of a run that has not ended is lost, because its sibling has
// expired, the record without it is returned together with an error of class ErrCorrupt that names it.
func (s *Store) Get(ctx context.Context, key string) (*state.Record, error) {
	it, err := s.readHeader(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	h, err := s.load(ctx, "get", key, it)
	if h == nil && err == nil {
		err = fmt.Errorf("dynamostore: run %s: %w", key, state.ErrNotFound)
	}
	if h == nil {
		return nil, err
	}
	return h.rec, err
}

// load reads a header with all its payloads. nil: there is no record, or it has expired. With an error about a lost
// payload comes the record without it.
func (s *Store) load(ctx context.Context, verb, key string, it item) (*header, error) {
	for range 4 {
		h, err := s.look(it)
		if h == nil || err != nil || len(h.refs) == 0 {
			return h, err
		}
		missing, err := s.fill(ctx, verb, key, h.refs)
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 {
			return h, nil
		}
		// A body goes when its message has been sent, and everything when the run is deleted: look again.
		if it, err = s.readHeader(ctx, verb, key); err != nil {
			return nil, err
		}
		now, err := s.look(it)
		if now == nil || err != nil {
			return nil, err
		}
		if lost := stillMissing(missing, now.refs); len(lost) > 0 {
			return h, lossOf(key, lost)
		}
	}
	return nil, fmt.Errorf("dynamostore: %s run %s: it changes faster than it can be read", verb, key)
}

// look reads a header alone, and notes what it tells. nil: there is none, or it has expired.
func (s *Store) look(it item) (*header, error) {
	if it == nil {
		return nil, nil
	}
	h, err := s.decodeHeader(it)
	if err != nil {
		return nil, err
	}
	if h.rec.Expired(s.clock.Now()) {
		return nil, nil
	}
	s.memo.put(h.rec.Key, hintOf(h.rec))
	return h, nil
}

// stillMissing are the refs of missing that refs has too.
func stillMissing(missing, refs []ref) []ref {
	return slices.DeleteFunc(missing, func(m ref) bool {
		return !slices.ContainsFunc(refs, func(r ref) bool { return r.part == m.part })
	})
}

// lossOf is the error about the first vital payload of those, or nil.
func lossOf(key string, lost []ref) error {
	for _, r := range lost {
		if r.vital {
			return fmt.Errorf("dynamostore: run %s: %s is lost: its item %q has expired or was deleted: %w", key, r.what, r.part, state.ErrCorrupt)
		}
	}
	return nil
}

// fill reads payloads out of their siblings, and returns those that are not there.
func (s *Store) fill(ctx context.Context, verb, key string, refs []ref) (missing []ref, err error) {
	keys := make([]item, len(refs))
	for i, r := range refs {
		keys[i] = s.itemKey(key, r.part)
	}
	found, err := s.batchGet(ctx, verb, key, keys)
	if err != nil {
		return nil, err
	}
	payloads := make(map[string][]byte, len(found))
	for _, it := range found {
		r := &reader{it: it}
		part := r.str(s.names.Part)
		raw, _ := r.payload(s.names.Data)
		if r.err != nil {
			return nil, fmt.Errorf("dynamostore: run %s: the item %q: %w", key, part, r.err)
		}
		if raw == nil {
			raw = []byte{}
		}
		payloads[part] = raw
	}
	for _, r := range refs {
		if raw, ok := payloads[r.part]; ok {
			r.fill(raw)
		} else {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

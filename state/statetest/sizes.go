package statetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// payload is JSON of n bytes that compresses badly enough to be noticed, or of less where the store can't hold as much.
func (s *subject) payload(n int) json.RawMessage {
	c := s.store.Capabilities()
	if c.MaxRecord > 0 {
		n = min(n, c.MaxRecord/8)
	}
	if c.MaxValue > 0 {
		n = min(n, c.MaxValue)
	}
	return exactly(n)
}

// exactly is JSON of n bytes, n being 2 at least.
func exactly(n int) json.RawMessage {
	b := make([]byte, 0, n)
	b = append(b, '"')
	for i := uint32(1); len(b) < n-1; i = i*1664525 + 1013904223 {
		b = append(b, "abcdefghijklmnopqrstuvwxyzABCDEF"[i>>27])
	}
	return append(b, '"')
}

// mostTested is the size of payload up to which limits are tried out; a store that takes more is taken at its word.
const mostTested = 64 << 20

func testSizes(s *subject) {
	c := s.store.Capabilities()
	s.part("ordinary", testOrdinarySizes)
	switch {
	case c.MaxValue == 0:
		s.Logf("no limit on a value")
	case c.MaxValue > mostTested:
		s.Logf("the limit of %d bytes on a value is not tried out", c.MaxValue)
	default:
		s.part("value", testMaxValue)
	}
	switch {
	case c.MaxRecord == 0:
		s.Logf("no limit on a record")
	case c.MaxRecord > mostTested:
		s.Logf("the limit of %d bytes on a record is not tried out", c.MaxRecord)
	default:
		s.part("record", testMaxRecord)
	}
}

// testOrdinarySizes: from a byte to what a saga may well have; 300 KB and a hundred messages are held or refused.
func testOrdinarySizes(s *subject) {
	for _, n := range []int{2, 100, 1000, 1024, 4000, 4096, 10_000, 64 << 10, 100_000, 300 << 10} {
		rec := s.record(fmt.Sprint(n))
		rec.Input = exactly(n)
		if !s.createOrTooLarge(rec, n) {
			continue
		}
		rec.Input = exactly(2)
		rec.Key = s.keyOf(fmt.Sprint("outputs ", n))
		rec = s.create(rec)
		for i := range rec.Steps {
			ch := s.done(rec, i)
			ch.Steps[0].Output = exactly(n)
			if !s.commitOrTooLarge(rec, ch, (i+1)*n) {
				break
			}
		}
		ch := s.end(rec)
		ch.Response = exactly(n)
		s.commitOrTooLarge(rec, ch, len(rec.Steps)*n+n)
	}
	s.part("messages", func(s *subject) {
		rec := s.create(s.record("large"))
		ch := s.done(rec, 0)
		ch.Messages = []outbox.Message{s.message(rec, 0)}
		ch.Messages[0].Body = []byte(exactly(300 << 10))
		s.commitOrTooLarge(rec, ch, 300<<10)
		rec = s.create(s.record("many"))
		ch = s.done(rec, 0)
		for i := range outbox.MaxMessages {
			ch.Messages = append(ch.Messages, s.message(rec, i))
		}
		s.commitOrTooLarge(rec, ch, outbox.MaxMessages*200)
	})
	s.part("shrinking", func(s *subject) {
		rec := s.record("record")
		rec.Input = s.payload(40_000)
		rec = s.create(rec)
		for _, n := range []int{50_000, 10, 40_000, 2, 3000, 50_000} {
			ch := s.done(rec, 1)
			ch.Steps[0].Output = s.payload(n)
			s.commit(rec, ch)
			s.stored(rec, "an output that is replaced by a larger or a smaller one")
		}
	})
}

// mustHold tells whether the store has promised to take a record with payloads of that size in all, each of them no
// larger than that: a tenth of MaxRecord is left for the rest.
func (s *subject) mustHold(size int) bool {
	c := s.store.Capabilities()
	return (c.MaxRecord == 0 || size+size/10+4096 <= c.MaxRecord) && (c.MaxValue == 0 || size <= c.MaxValue)
}

func (s *subject) createOrTooLarge(rec *state.Record, size int) bool {
	s.Helper()
	_, err := s.store.Create(s.Context(), rec)
	if err != nil && !s.mustHold(size) {
		require.ErrorIs(s, err, state.ErrTooLarge)
		s.gone(rec.Key, "ErrTooLarge: nothing was written")
		return false
	}
	require.NoError(s, err, "Create with %d bytes", size)
	s.stored(rec, fmt.Sprintf("Create with %d bytes", size))
	return true
}

func (s *subject) commitOrTooLarge(rec *state.Record, ch *state.Change, size int) bool {
	s.Helper()
	err := s.store.Commit(s.Context(), ch)
	if err != nil && !s.mustHold(size) {
		require.ErrorIs(s, err, state.ErrTooLarge)
		s.stored(rec, "ErrTooLarge: nothing was written")
		return false
	}
	require.NoError(s, err, "Commit with %d bytes", size)
	require.NoError(s, ch.Apply(rec))
	s.stored(rec, fmt.Sprintf("Commit with %d bytes", size))
	return true
}

// testMaxValue: a payload of just MaxValue is held, one byte more is refused, wherever it stands.
func testMaxValue(s *subject) {
	limit := s.store.Capabilities().MaxValue
	for _, over := range []int{0, 1} {
		rec := s.record(fmt.Sprint("input ", over))
		rec.Input = exactly(limit + over)
		if over > 0 {
			_, err := s.store.Create(s.Context(), rec)
			require.ErrorIs(s, err, state.ErrTooLarge)
			require.False(s, bytes.Contains([]byte(err.Error()), rec.Input[:20]), "an error must not quote a payload")
			s.gone(rec.Key, "ErrTooLarge: nothing was written")
		} else {
			s.stored(s.create(rec), "an input of MaxValue bytes")
		}
		for name, set := range map[string]func(rec *state.Record, ch *state.Change, value json.RawMessage){
			"output":   func(_ *state.Record, ch *state.Change, value json.RawMessage) { ch.Steps[0].Output = value },
			"response": func(_ *state.Record, ch *state.Change, value json.RawMessage) { ch.Response = value },
			"body": func(rec *state.Record, ch *state.Change, value json.RawMessage) {
				ch.Messages = []outbox.Message{s.message(rec, 0)}
				ch.Messages[0].Body = []byte(value)
			},
		} {
			rec := s.create(s.record(fmt.Sprint(name, " ", over)))
			ch := s.done(rec, 0)
			set(rec, ch, exactly(limit+over))
			err := s.store.Commit(s.Context(), ch)
			if over > 0 {
				require.ErrorIs(s, err, state.ErrTooLarge, "%s over MaxValue", name)
				s.stored(rec, name+" over MaxValue: nothing was written")
				continue
			}
			require.NoError(s, err, "%s of MaxValue bytes", name)
			require.NoError(s, ch.Apply(rec))
			s.stored(rec, name+" of MaxValue bytes")
		}
	}
}

// mostSteps is how many steps testMaxRecord makes at most.
const mostSteps = 64

// testMaxRecord: most of MaxRecord is there for payloads; what comes to more than all of it is refused.
// brim fills a record up to the last few bytes, and then makes changes that bring no payload.
func (s *subject) brim(rec *state.Record) {
	i, size := len(rec.Steps)-1, len(rec.Steps[len(rec.Steps)-1].Output)
	for part := s.store.Capabilities().MaxRecord / 4; part > 1; part /= 2 {
		ch := s.done(rec, i)
		ch.Steps[0].Output = exactly(size + part)
		err := s.store.Commit(s.Context(), ch)
		if err == nil {
			size += part
			require.NoError(s, ch.Apply(rec))
			continue
		}
		require.ErrorIs(s, err, state.ErrTooLarge)
	}
	s.stored(rec, "filled to the brim")
	words := strings.Repeat("w", state.MaxMessage)
	f := &state.Failure{Step: rec.Steps[i].Name, Code: words, Message: words, At: rec.UpdatedAt}
	for range 3 {
		ch := s.follow(rec)
		ch.Failure = f
		ch.Steps = []state.StepChange{{Index: i, StepRecord: rec.Steps[i]}}
		ch.Steps[0].Error, ch.Steps[0].UndoError = f, f
		ch.Audit = []state.AuditEntry{{At: rec.UpdatedAt, Actor: "a", Verb: "retry", Note: words}}
		s.commit(rec, ch)
		s.stored(rec, "a change without a payload is never too large")
	}
}

func testMaxRecord(s *subject) {
	c := s.store.Capabilities()
	part := c.MaxRecord / 4
	if c.MaxValue > 0 {
		part = min(part, c.MaxValue)
	}
	if c.MaxRecord/part > mostSteps {
		s.Logf("a record of %d bytes is not tried out, since values of %d bytes make it up", c.MaxRecord, c.MaxValue)
		return
	}
	rec := s.record("record")
	rec.Plan, rec.Steps = nil, nil
	for i := range c.MaxRecord/part + 2 {
		rec.Plan = append(rec.Plan, fmt.Sprint("step ", i))
		rec.Steps = append(rec.Steps, state.StepRecord{Name: fmt.Sprint("step ", i), Status: state.StepPending})
	}
	rec = s.create(rec)
	total := 0
	for i := range rec.Steps {
		ch := s.done(rec, i)
		ch.Steps[0].Output = exactly(part)
		total += part
		err := s.store.Commit(s.Context(), ch)
		if total > c.MaxRecord {
			require.ErrorIs(s, err, state.ErrTooLarge, "%d bytes, MaxRecord %d", total, c.MaxRecord)
			s.stored(rec, "ErrTooLarge: nothing was written")
			break
		}
		if err != nil && total+total/10+4096 > c.MaxRecord {
			require.ErrorIs(s, err, state.ErrTooLarge)
			s.stored(rec, "ErrTooLarge: nothing was written")
			total -= part
			continue
		}
		require.NoError(s, err, "%d bytes, MaxRecord %d", total, c.MaxRecord)
		require.NoError(s, ch.Apply(rec))
	}
	s.stored(rec, "filled up")
	s.commit(rec, s.follow(rec))
	s.stored(rec, "a full record can still be written to")
	s.brim(rec)

	if c.MaxValue == 0 || c.MaxValue > c.MaxRecord {
		large := s.record("large")
		large.Input = exactly(c.MaxRecord + 1)
		_, err := s.store.Create(s.Context(), large)
		require.ErrorIs(s, err, state.ErrTooLarge)
		s.gone(large.Key, "ErrTooLarge: nothing was written")
	}
}

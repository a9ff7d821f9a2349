package statetest

import (
	"errors"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// crowd is how many goroutines want the same thing at once.
const crowd = 64

func testRaces(s *subject) {
	s.part("create", func(s *subject) {
		var won atomic.Int64
		existing := make([]*state.Record, crowd)
		writes := make([]string, crowd)
		var all []func()
		for i := range crowd {
			rec := s.record("record")
			writes[i] = rec.WriteID
			all = append(all, func() {
				got, err := s.store.Create(s.Context(), rec)
				if s.noError(err, "Create") && got == nil {
					won.Add(1)
				}
				existing[i] = got
			})
		}
		together(all...)
		require.EqualValues(s, 1, won.Load(), "one Create wins")
		stored := s.get(s.keyOf("record"))
		for i, got := range existing {
			if got == nil {
				require.Equal(s, writes[i], stored.WriteID, "the winner's record is the one that is stored")
				continue
			}
			s.equal(stored, got, "the losers get the winner's record")
		}
	})
	s.part("commit", func(s *subject) {
		rec := s.create(s.record("record"))
		results := make([]error, crowd)
		changes := make([]*state.Change, crowd)
		var all []func()
		for i := range crowd {
			changes[i] = s.done(rec, i%3)
			changes[i].Owner = s.fresh("owner")
			all = append(all, func() { results[i] = s.store.Commit(s.Context(), changes[i]) })
		}
		together(all...)
		stored := s.get(rec.Key)
		winner := -1
		for i, err := range results {
			if err == nil {
				require.Equal(s, -1, winner, "one Commit wins")
				winner = i
				continue
			}
			var refused *state.ConflictError
			require.ErrorAs(s, err, &refused)
			s.equal(stored, refused.Current, "the losers get the winner's record")
		}
		require.NotEqual(s, -1, winner, "one Commit wins")
		require.NoError(s, changes[winner].Apply(rec))
		s.equal(rec, stored, "the winner's change is the one that was made")
	})
	s.part("no lost update", testNoLostUpdate)
}

// testNoLostUpdate: writers that read, change and write count up together; the record that a refused one is handed is good
// enough to try again with.
func testNoLostUpdate(s *subject) {
	const writers, each = 8, 5
	rec := s.create(s.record("record"))
	var all []func()
	for range writers {
		all = append(all, func() {
			current := s.readFor(rec.Key)
			for made := 0; made < each && current != nil; {
				ch := s.follow(current)
				step := current.Steps[0]
				step.Attempts++
				ch.Steps = []state.StepChange{{Index: 0, StepRecord: step}}
				err := s.store.Commit(s.Context(), ch)
				var refused *state.ConflictError
				switch {
				case err == nil:
					made++
					current = s.readFor(rec.Key)
				case errors.As(err, &refused) && refused.Current != nil:
					current = refused.Current
				default:
					s.Errorf("Commit: %v", err)
					return
				}
			}
		})
	}
	together(all...)
	got := s.get(rec.Key)
	require.EqualValues(s, 1+writers*each, got.Revision)
	require.Equal(s, writers*each, got.Steps[0].Attempts, "no update is lost")
}

func (s *subject) readFor(key string) *state.Record {
	rec, err := s.store.Get(s.Context(), key)
	if !s.noError(err, "Get") {
		return nil
	}
	return rec
}

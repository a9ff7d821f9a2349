package statetest

import (
	"context"
	"reflect"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// testIsolation: whatever a caller does to what it passed in or got back, the store holds what was committed.
func testIsolation(s *subject) {
	given := s.filled("record")
	given.ExpiresAt, given.Cancel = time.Time{}, nil
	given.Outbox.Token, given.Outbox.ClaimedUntil, given.Outbox.Messages[1].Parked, given.Outbox.Messages[0].Parked = "", time.Time{}, "", ""
	want := s.create(given)
	scribble(reflect.ValueOf(given))
	s.stored(want, "the record given to Create is changed")

	scribble(reflect.ValueOf(s.get(want.Key)))
	s.stored(want, "the record got from Get is changed")

	existing, err := s.store.Create(s.Context(), want)
	require.NoError(s, err)
	scribble(reflect.ValueOf(existing))
	s.stored(want, "the record got from Create is changed")

	ch := s.filledChange(want, state.StatusCompensating)
	ch.Claim = nil
	s.commit(want, ch)
	scribble(reflect.ValueOf(ch))
	s.stored(want, "the change given to Commit is changed")

	ch = s.follow(want)
	ch.IfRevision--
	var refused *state.ConflictError
	require.ErrorAs(s, s.store.Commit(s.Context(), ch), &refused)
	scribble(reflect.ValueOf(refused.Current))
	s.stored(want, "ConflictError.Current is changed")

	page, err := s.store.List(s.Context(), state.Query{})
	require.NoError(s, err)
	require.Len(s, page.Records, 1)
	scribble(reflect.ValueOf(page.Records[0]))
	s.stored(want, "a record got from List is changed")

	batch := s.claim(1)[want.Key]
	taken := s.get(want.Key)
	require.Equal(s, batch.Token, taken.Outbox.Token)
	want.Outbox.Token, want.Outbox.ClaimedUntil = taken.Outbox.Token, taken.Outbox.ClaimedUntil
	key, token, id := batch.RunKey, batch.Token, batch.Messages[0].ID
	scribble(reflect.ValueOf(&batch))
	s.stored(want, "a batch is changed")

	require.NoError(s, s.store.Park(s.Context(), outbox.Batch{RunKey: key, Token: token}, id, "reason"))
	parked, _, err := s.store.Parked(s.Context(), "")
	require.NoError(s, err)
	require.Len(s, parked, 1)
	scribble(reflect.ValueOf(&parked[0]))
	want.Outbox.Messages[0].Parked, want.Outbox.Token, want.Outbox.ClaimedUntil = "reason", "", time.Time{}
	s.stored(want, "a parked message is changed")
}

// scribble overwrites all that can be reached from v.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("scribbled").Convert(v.Type().Elem()))
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("scribbled")
		}
	case reflect.Uint8:
		v.SetUint('!')
	}
}

// testContexts: nothing is half done in a context that has ended, and the answer is an error.
func testContexts(s *subject) {
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	rec := s.record("record")
	_, err := s.store.Create(ended, rec)
	require.Error(s, err, "Create")
	s.gone(rec.Key, "Create in a context that has ended")

	rec = s.create(rec)
	ch := s.done(rec, 0)
	ch.Messages = []outbox.Message{s.message(rec, 0), s.message(rec, 1)}
	s.commit(rec, ch)
	calls := []func() error{
		func() error { return s.store.Commit(ended, s.done(rec, 1)) },
		func() error {
			return s.store.RequestCancel(ended, rec.Key, state.CancelRequest{Reason: "r", Actor: "a", At: now()})
		},
		func() error { return s.store.Delete(ended, rec.Key) },
		func() error { _, err := s.store.Get(ended, rec.Key); return err },
		func() error { _, err := s.store.List(ended, state.Query{}); return err },
		func() error { _, err := s.store.Claim(ended, 10, time.Minute); return err },
		func() error { _, _, err := s.store.Parked(ended, ""); return err },
	}
	for i, call := range calls {
		err := call()
		require.Error(s, err, "call %d in a context that has ended", i)
		require.NotErrorIs(s, err, state.ErrConflict)
		require.NotErrorIs(s, err, state.ErrNotFound)
		s.stored(rec, "a call in a context that has ended")
	}
	batch := s.claim(1)[rec.Key]
	rec = s.get(rec.Key)
	for i, call := range []func() error{
		func() error { return s.store.Sent(ended, batch, []string{batch.Messages[0].ID}) },
		func() error { return s.store.Park(ended, batch, batch.Messages[0].ID, "reason") },
	} {
		require.Error(s, call(), "call %d of a relay in a context that has ended", i)
		s.stored(rec, "a relay's call in a context that has ended")
	}
	require.NoError(s, s.store.Park(s.Context(), batch, batch.Messages[0].ID, "reason"))
	rec = s.get(rec.Key)
	require.Error(s, s.store.Unpark(ended, batch.Messages[0].ID, true, "note"))
	s.stored(rec, "Unpark in a context that has ended")
}

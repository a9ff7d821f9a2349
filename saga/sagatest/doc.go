// Package sagatest is for the tests of those who write sagas. [Crash] takes a whole saga through a crash at every point, with
// a [Recorder] in place of the systems that it calls. [Golden] fails when a change of the declaration would strand runs in
// flight. And there are parts for tests of your own: of one step by itself ([NewRun], [Do], [Undo]), on a clock that stands
// still until the test moves it ([Clock]), and on a store that fails as it is told ([FaultyStore]).
//
//	func TestACardIsCharged(t *testing.T) {
//		r := sagatest.NewRun(t, saga.Key{ID: "order-001"}, charge, Order{Amount: 1200},
//			sagatest.Given(reserve, Reservation{ID: "r-1"}))
//
//		out, err := sagatest.Do(t.Context(), r)
//		require.NoError(t, err)
//		require.Equal(t, "c-1", out.ID)
//		require.Len(t, sagatest.Emitted(r), 1)
//
//		// Nobody knows whether it was charged: it is voided by the key that the charge carried.
//		require.NoError(t, sagatest.Undo(t.Context(), r, steps.Outcome[Charge]{}))
//	}
package sagatest

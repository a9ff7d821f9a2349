package saga_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Processes are killed at each moment of a message's life, in a step and in a compensation: it arrives at least once if
// its step is recorded, and never if not, and every copy has the same ID.
func TestAMessageArrivesIfAndOnlyIfItsStepIsRecorded(t *testing.T) {
	for _, moment := range []struct {
		at       string
		stored   int // messages in the record that the process leaves
		sent     int // times that the process has sent each message
		relayed  int // the same, once a relay has looked
		finished int // the same, once the run has ended
	}{
		{at: beforeCommit, finished: 1},
		{at: afterCommit, stored: 2, relayed: 1, finished: 1}, // the relay needs nobody to go on with the run
		{at: afterPublish, stored: 2, sent: 1, relayed: 2, finished: 2},
		{at: afterRemoval, sent: 1, relayed: 1, finished: 1},
	} {
		for name, e := range map[string]errand{"in-a-step": {at: moment.at}, "in-a-compensation": {at: moment.at, backward: true}} {
			t.Run(moment.at+"/"+name, func(t *testing.T) {
				eachSite(t, func(t *testing.T, s *site) {
					s.killed(t, e)
					store := s.open(t)
					require.Len(t, recordOf(t, store, theKey, "news").Outbox.Messages, moment.stored)
					require.Equal(t, copies(e.ids(), moment.sent), s.queue().ids())
					relayed(t, store, s.queue())
					require.Equal(t, copies(e.ids(), moment.relayed), s.queue().ids())
					s.finished(t, e)
					relayed(t, store, s.queue())
					require.Equal(t, copies(e.ids(), moment.finished), s.queue().ids())

					rec := recordOf(t, store, theKey, "news")
					require.Equal(t, map[bool]state.Status{false: state.StatusCompleted, true: state.StatusFailed}[e.backward], rec.Status)
					require.False(t, rec.ExpiresAt.IsZero(), "nothing is left that would keep it")
				})
			})
		}
	}
}

// copies is n times the same IDs.
func copies(ids []string, n int) []string { return slices.Repeat(ids, n) }

// The process dies with the step unrecorded, and the next one's attempt fails for good: the message never arrives.
func TestAMessageOfAStepThatIsNeverRecordedNeverArrives(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		s.killed(t, errand{at: beforeCommit})
		s.finished(t, errand{refuses: true})
		store := s.open(t)
		rec := recordOf(t, store, theKey, "news")
		require.Equal(t, state.StatusFailed, rec.Status)
		require.Empty(t, rec.Outbox.Messages)
		relayed(t, store, s.queue())
		require.Empty(t, s.queue().ids())
	})
}

// A FIFO queue delivers one of the copies, in order.
func TestAFIFOQueueDeliversAMessageOfADeadProcessOnce(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		q := brokertest.NewQueue(t, true)
		e := errand{at: afterPublish, queue: q.URL}
		s.killed(t, e)
		to, err := sqsoutbox.New(t.Context(), q.Client, q.URL)
		require.NoError(t, err)
		relay := relayed(t, s.open(t), to)
		require.EqualValues(t, 2, relay.Stats().Sent, "both a second time")
		var got []string
		for _, m := range q.Receive(t) {
			got = append(got, *m.MessageAttributes["message-id"].StringValue)
		}
		require.Equal(t, e.ids(), got)
	})
}

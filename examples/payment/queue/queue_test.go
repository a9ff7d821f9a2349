package queue_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/queue"
	"github.com/tsuzuki-go/tsuzuki/outbox"
)

func message(id, key, body string) outbox.Message {
	return outbox.Message{ID: id, Topic: "t", Key: key, Type: "made", Body: []byte(body)}
}

func TestMessagesStayInOrderAndCopiesToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	none, err := queue.Open(path).Entries()
	require.NoError(t, err, "a file that is not there")
	assert.Empty(t, none)

	for _, ids := range [][]string{{"a/0", "a/1"}, {"a/1"}} {
		var msgs []outbox.Message
		var want []outbox.Result
		for _, id := range ids {
			msgs, want = append(msgs, message(id, "a", `{"n":1}`)), append(want, outbox.Result{ID: id})
		}
		got, err := queue.Open(path).Publish(t.Context(), msgs)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	all, err := queue.Open(path).Entries()
	require.NoError(t, err)
	entry := func(id string) queue.Entry { return queue.Entry{id, "t", "a", "made", json.RawMessage(`{"n":1}`)} }
	assert.Equal(t, []queue.Entry{entry("a/0"), entry("a/1"), entry("a/1")}, all)
}

func TestARefusedMessageHoldsBackThoseBehindIt(t *testing.T) {
	q := queue.Open(filepath.Join(t.TempDir(), "queue"))
	got, err := q.Publish(t.Context(), []outbox.Message{
		message("a/0", "a", "1"), message("a/1", "a", "no JSON"), message("b/0", "b", "2"), message("a/2", "a", "3"),
	})
	require.NoError(t, err)
	require.Len(t, got, 4)
	assert.NoError(t, got[0].Err)
	assert.True(t, got[1].Refused)
	require.Error(t, got[1].Err)
	assert.NotContains(t, got[1].Err.Error(), "no JSON", "a payload")
	assert.NoError(t, got[2].Err, "another ordering key")
	require.ErrorIs(t, got[3].Err, outbox.ErrHeldBack)
	all, err := q.Entries()
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, []string{"a/0", "b/0"}, []string{all[0].ID, all[1].ID})
}

func TestAFileThatCantBeWrittenIsAnOutage(t *testing.T) {
	_, err := queue.Open(filepath.Join(t.TempDir(), "missing", "queue")).Publish(t.Context(), []outbox.Message{message("a/0", "a", "1")})
	require.Error(t, err)
}

func TestABrokenFileIsNotTakenForAnEmptyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	require.NoError(t, os.WriteFile(path, []byte("not json\n"), 0o600))
	_, err := queue.Open(path).Entries()
	require.ErrorContains(t, err, "line 1")
}

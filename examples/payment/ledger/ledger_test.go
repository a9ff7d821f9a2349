package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
)

func entry(e ledger.Entry) func([]ledger.Entry) (ledger.Entry, error) {
	return func([]ledger.Entry) (ledger.Entry, error) { return e, nil }
}

func TestOneEntryPerKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	book := ledger.Open(path)
	none, err := book.Entries()
	require.NoError(t, err, "a file that is not there")
	assert.Empty(t, none)

	made, repeated, err := book.Once("k", entry(ledger.Entry{Kind: "charge", ID: "a", Amount: 7}))
	require.NoError(t, err)
	assert.False(t, repeated)
	assert.Equal(t, ledger.Entry{Kind: "charge", ID: "a", Amount: 7, Key: "k"}, made)

	// Another process: all it knows is the file.
	again, repeated, err := ledger.Open(path).Once("k", entry(ledger.Entry{Kind: "charge", ID: "b", Amount: 8}))
	require.NoError(t, err)
	assert.True(t, repeated)
	assert.Equal(t, made, again)

	all, err := book.Entries()
	require.NoError(t, err)
	assert.Equal(t, []ledger.Entry{made}, all)
}

func TestOneEntryPerKeyAmongMany(t *testing.T) {
	book := ledger.Open(filepath.Join(t.TempDir(), "book"))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			_, _, err := book.Once("key-"+strconv.Itoa(i%4), entry(ledger.Entry{Kind: "charge", Amount: int64(i)}))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	all, err := book.Entries()
	require.NoError(t, err)
	assert.Len(t, all, 4)
}

func TestARefusedEntryIsNotMade(t *testing.T) {
	book := ledger.Open(filepath.Join(t.TempDir(), "book"))
	no := errors.New("no")
	_, _, err := book.Once("k", func([]ledger.Entry) (ledger.Entry, error) { return ledger.Entry{}, no })
	require.ErrorIs(t, err, no)
	_, repeated, err := book.Once("k", entry(ledger.Entry{Kind: "charge"}))
	require.NoError(t, err)
	assert.False(t, repeated, "the key is still free")
}

func TestWhatUndoes(t *testing.T) {
	all := []ledger.Entry{{Kind: "charge", Key: "a"}, {Kind: "refund", Key: "b", Of: "a"}}
	e, ok := ledger.Undone(all, "a")
	assert.True(t, ok)
	assert.Equal(t, "b", e.Key)
	_, ok = ledger.Undone(all, "b")
	assert.False(t, ok)
	_, ok = ledger.Find(all, "c")
	assert.False(t, ok)
}

func TestABrokenFileIsNotTakenForAnEmptyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	require.NoError(t, os.WriteFile(path, []byte("{\"kind\":\"charge\",\"key\":\"k\"}\nnot json\n"), 0o600))
	_, err := ledger.Open(path).Entries()
	require.ErrorContains(t, err, "line 2")
	_, _, err = ledger.Open(path).Once("x", entry(ledger.Entry{}))
	require.Error(t, err)
}

func TestIDsAreTheSameEveryTime(t *testing.T) {
	assert.Equal(t, "ch_8254c329", ledger.ID("ch", "k"))
	assert.NotEqual(t, ledger.ID("ch", "k"), ledger.ID("ch", "l"))
}

package shop_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/shop"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

func TestStockIsReservedAndReleasedOnce(t *testing.T) {
	books := ledger.Open(filepath.Join(t.TempDir(), "stock"))
	stock := shop.NewStock(books)
	first, err := stock.Reserve(t.Context(), "tea", 2, "k")
	require.NoError(t, err)
	again, err := stock.Reserve(t.Context(), "tea", 2, "k")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	for range 2 {
		require.NoError(t, stock.Release(t.Context(), "k", "k/compensate"))
	}
	all, err := books.Entries()
	require.NoError(t, err)
	assert.Equal(t, []ledger.Entry{
		{Kind: "reserve", ID: first, What: "tea", Amount: 2, Key: "k"},
		{Kind: "release", ID: first, What: "tea", Amount: 2, Key: "k/compensate", Of: "k"},
	}, all)
}

func TestAClosedKeyGrantsNothing(t *testing.T) {
	books := ledger.Open(filepath.Join(t.TempDir(), "points"))
	points := shop.NewPoints(books)
	require.NoError(t, points.Revoke(t.Context(), "k", "k/compensate"))
	err := points.Grant(t.Context(), 12, "k")
	assert.True(t, steps.IsPermanent(err), "a call that was late must not take effect: %v", err)
	all, err := books.Entries()
	require.NoError(t, err)
	assert.Equal(t, []ledger.Entry{{Kind: "revoke", Key: "k/compensate", Of: "k"}}, all)
}

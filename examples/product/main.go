package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/sqlite"
)

func main() {
	if err := walk(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "product:", err)
		os.Exit(1)
	}
}

// walk makes the four requests, on a store in a temporary folder.
func walk(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "tsuzuki-product-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "runs.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	c := &productCatalog{products: map[string]string{}}
	p := &priceService{}
	registration, err := saga.New(newRegistration(c, p), store)
	if err != nil {
		return err
	}
	shop := &handler{registration}
	tea := product{SKU: "tea-100", Name: "Green tea", Price: 1200}
	dearer := tea
	dearer.Price = 1500

	fmt.Println("A product is registered in two steps: product_registered, then price_set.")
	for i, request := range []struct {
		title   string
		product product
		down    bool
		want    error
	}{
		{"The first request, while the price service is down", tea, true, saga.ErrInterrupted},
		{"The same request again, with the service back: only the second step runs", tea, false, nil},
		{"And again: nothing runs, the stored result is returned", tea, false, nil},
		{"The same key with another price is refused", dearer, false, saga.ErrPayloadMismatch},
	} {
		fmt.Printf("\n%d. %s.\n", i+1, request.title)
		p.down = request.down
		if err := shop.handle(ctx, request.product); !errors.Is(err, request.want) {
			return fmt.Errorf("request %d ended with %w, expected was %w", i+1, err, request.want)
		}
		if err := shop.show(ctx, tea.SKU); err != nil {
			return err
		}
	}
	return nil
}

// handler stands for what takes requests.
type handler struct {
	registration *saga.Orchestrator[product, listing]
}

func runKey(sku string) saga.Key { return saga.Key{Tenant: "shop-1", ID: sku} }

// handle runs the saga under the request's key, and answers by the kind of the error.
func (h *handler) handle(ctx context.Context, in product) error {
	var info saga.RunInfo
	listed, err := h.registration.Run(ctx, runKey(in.SKU), in, saga.Report(&info))
	switch {
	case errors.Is(err, saga.ErrInterrupted):
		fmt.Println("   answer   503: interrupted, send the same request again")
	case errors.Is(err, saga.ErrPayloadMismatch):
		fmt.Println("   answer   422: the same key with another payload")
	case err != nil:
		fmt.Println("   answer   500:", err)
	case info.Replayed:
		fmt.Printf("   answer   200: %s at %d, the stored result\n", listed.ProductID, listed.Price)
	default:
		fmt.Printf("   answer   200: %s at %d\n", listed.ProductID, listed.Price)
	}
	return err
}

// show prints the record that is kept of the run.
func (h *handler) show(ctx context.Context, sku string) error {
	rec, err := h.registration.Get(ctx, runKey(sku))
	if err != nil {
		return err
	}
	fmt.Printf("   record   %s: %s\n", rec.Key, rec.Status)
	for _, s := range rec.Steps {
		fmt.Printf("            %-18s  %-7s  %s\n", s.Name, s.Status, remark(s))
	}
	return nil
}

// remark is a step's result, or why there is none yet.
func remark(s state.StepRecord) string {
	if s.Error != nil {
		return s.Error.Message
	}
	return string(s.Output)
}

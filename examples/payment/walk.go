package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
	"github.com/tsuzuki-go/tsuzuki/examples/payment/provider"
)

// walk makes one order in three processes, the first of which dies.
func walk(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "tsuzuki-payment-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.db = filepath.Join(dir, "runs.db")
	if o.store == onDynamoDB || o.sqs != "" {
		// A table and a queue remember the last walk, and the same order again would not run.
		o.key = fmt.Sprintf("order-%x", time.Now().UnixMilli())
	}

	// The provider outlives the processes that call it, as providers do.
	url, stop, err := provider.Serve(ctx, provider.New(o.books(providerBooks), provider.Mood{}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	o.provider = url

	fmt.Printf("An order in %d steps: %s.\n", len(checkout.Steps()), strings.Join(checkout.Steps(), ", "))

	fmt.Println("\nprocess 1 dies when it has charged the card:")
	dying := o
	dying.crashAfter = checkout.ChargeCard
	if err := dying.child(ctx, exitCrashed); err != nil {
		return err
	}
	fmt.Println()
	if err := o.look(ctx); err != nil {
		return err
	}
	fmt.Println("\nprocess 2 gets the same order:")
	if err := o.child(ctx, 0); err != nil {
		return err
	}
	fmt.Println("\nprocess 3 gets it once more:")
	if err := o.child(ctx, 0); err != nil {
		return err
	}
	fmt.Println()
	if err := o.showBooks(); err != nil {
		return err
	}
	fmt.Println("\nMore to see: --decline, --timeout, --crash-after " + checkout.ReserveStock + ", --help.")
	return nil
}

// child starts this program again as a process of its own, which makes the order and has to end with that code.
func (o options) child(ctx context.Context, want int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"--key", o.key, "--db", o.db, "--provider", o.provider}, o.placeFlags()...)
	if o.crashAfter != "" {
		args = append(args, "--crash-after", o.crashAfter)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == want:
		return nil
	case err == nil && want != 0:
		return fmt.Errorf("the process should have ended with code %d, and ended well", want)
	}
	return err
}

// look opens the store that the dead process has left behind, and shows what stands in it.
func (o options) look(ctx context.Context) (err error) {
	store, closeStore, err := o.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	return showRecord(ctx, store, o.key)
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/checkout"
)

// Exit codes.
const (
	exitError   = 1
	exitUsage   = 2
	exitCrashed = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := start(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func start(ctx context.Context, args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	if o.walk {
		err = walk(ctx)
	} else {
		err = one(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		return exitError
	}
	return 0
}

// options are the flags.
type options struct {
	walk       bool // there were none
	crashAfter string
	decline    bool
	timeout    bool
	key        string
	db         string
	provider   string
	http       string
}

const usage = `go run ./examples/payment          one order in three processes, the first of which dies
go run ./examples/payment FLAGS    one process that makes an order

  --crash-after STEP  end this process when STEP has run and before that is recorded:
                      reserve_stock, charge_card, grant_points or notify
  --decline           the provider declines the card
  --timeout           the provider charges, and answers too late
  --key KEY           the order's number (order-001)
  --db FILE           where runs are recorded, the services' books beside it (a temporary folder)
  --provider URL      call the payment provider at URL instead of starting one
  --http ADDR         serve orders over HTTP at ADDR, such as :8080, until it is interrupted (in place of --key)
`

func parse(args []string) (options, error) {
	o := options{walk: len(args) == 0}
	f := flag.NewFlagSet("payment", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	f.StringVar(&o.crashAfter, "crash-after", "", "")
	f.BoolVar(&o.decline, "decline", false, "")
	f.BoolVar(&o.timeout, "timeout", false, "")
	f.StringVar(&o.key, "key", "order-001", "")
	f.StringVar(&o.db, "db", "", "")
	f.StringVar(&o.provider, "provider", "", "")
	f.StringVar(&o.http, "http", "", "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	wrong := o.wrong(f.Args())
	if wrong != nil {
		fmt.Fprintf(os.Stderr, "payment: %v\n\n%s", wrong, usage)
	}
	return o, wrong
}

func (o options) wrong(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.crashAfter != "" && !slices.Contains(checkout.Steps(), o.crashAfter):
		return fmt.Errorf("--crash-after %s: there is no such step", o.crashAfter)
	case o.provider != "" && (o.decline || o.timeout):
		return errors.New("--decline and --timeout are for the provider that this process starts, not for one at --provider")
	}
	return nil
}

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
		err = walk(ctx, o)
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
	walk       bool // there were none but those that say where things are kept
	crashAfter string
	decline    bool
	timeout    bool
	key        string
	db         string
	provider   string
	http       string
	store      string
	endpoint   string
	table      string
	sqs        string
}

// The values of --store.
const (
	onSQLite   = "sqlite"
	onDynamoDB = "dynamodb"
)

const defaultTable = "tsuzuki-payment"

const usage = `go run ./examples/payment          one order in three processes, the first of which dies
go run ./examples/payment FLAGS    one process that makes an order

  --crash-after STEP  end this process when STEP has run and before that is recorded:
                      reserve_stock, charge_card, grant_points or notify
  --decline           the provider declines the card
  --timeout           the provider charges, and answers too late
  --key KEY           the order's number (order-001)
  --db FILE           where runs are recorded, the services' books and the queue beside it (a temporary folder)
  --provider URL      call the payment provider at URL instead of starting one
  --http ADDR         serve orders over HTTP at ADDR, such as :8080, until it is interrupted (in place of --key)

And for both:

  --store dynamodb    record runs on a DynamoDB table (--db is then for the books and the queue alone)
  --endpoint URL      ask for the table at URL, such as http://127.0.0.1:8000, instead of at AWS
  --table NAME        the table's name (tsuzuki-payment); it is made when it is not there
  --sqs URL           send messages to the SQS queue at URL instead of to a file

AWS_REGION and credentials are taken from the environment, as every AWS program does.
`

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("payment", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	f.StringVar(&o.crashAfter, "crash-after", "", "")
	f.BoolVar(&o.decline, "decline", false, "")
	f.BoolVar(&o.timeout, "timeout", false, "")
	f.StringVar(&o.key, "key", "order-001", "")
	f.StringVar(&o.db, "db", "", "")
	f.StringVar(&o.provider, "provider", "", "")
	f.StringVar(&o.http, "http", "", "")
	f.StringVar(&o.store, "store", onSQLite, "")
	f.Func("endpoint", "", func(url string) error {
		if url == "" {
			return errors.New("it is empty: the server at it has not come up") // nobody means AWS by that
		}
		o.endpoint = url
		return nil
	})
	f.StringVar(&o.table, "table", "", "")
	f.StringVar(&o.sqs, "sqs", "", "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.walk = true
	given := map[string]bool{}
	f.Visit(func(set *flag.Flag) {
		given[set.Name] = true
		o.walk = o.walk && slices.Contains(places, set.Name)
	})
	wrong := o.wrong(given, f.Args())
	if wrong != nil {
		fmt.Fprintf(os.Stderr, "payment: %v\n\n%s", wrong, usage)
	}
	if o.table == "" {
		o.table = defaultTable
	}
	return o, wrong
}

// places are the flags that say where things are kept. A walk takes them too.
var places = []string{"store", "endpoint", "table", "sqs"}

// placeFlags are those flags for another process.
func (o options) placeFlags() (flags []string) {
	if o.store == onDynamoDB {
		flags = append(flags, "--store", o.store, "--table", o.table)
	}
	if o.endpoint != "" {
		flags = append(flags, "--endpoint", o.endpoint)
	}
	if o.sqs != "" {
		flags = append(flags, "--sqs", o.sqs)
	}
	return flags
}

func (o options) wrong(given map[string]bool, rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.http != "" && given["key"]:
		return errors.New("--http takes the orders' numbers from its requests, so there is no --key")
	case o.crashAfter != "" && !slices.Contains(checkout.Steps(), o.crashAfter):
		return fmt.Errorf("--crash-after %s: there is no such step", o.crashAfter)
	case o.store != onSQLite && o.store != onDynamoDB:
		return fmt.Errorf("--store %s: it is %s or %s", o.store, onSQLite, onDynamoDB)
	case o.store != onDynamoDB && (o.endpoint != "" || o.table != ""):
		return errors.New("--endpoint and --table are for --store dynamodb")
	case o.provider != "" && (o.decline || o.timeout):
		return errors.New("--decline and --timeout are for the provider that this process starts, not for one at --provider")
	}
	return nil
}

package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/tsuzuki-go/tsuzuki/examples/payment/ledger"
)

// sayf prints one line about something.
func sayf(about, format string, args ...any) {
	fmt.Printf("  %-14s %s\n", about, fmt.Sprintf(format, args...))
}

func good(s string) string { return coloured("32", s) }
func bad(s string) string  { return coloured("33", s) }

// coloured puts s in a colour, if somebody looks at it on a terminal and wants colours.
func coloured(code, s string) string {
	if !colours {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

var colours = onTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"

func onTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// showBooks prints what the services have done, and how much of it stands.
func (o options) showBooks() error {
	entries, err := o.books(providerBooks).Entries()
	if err != nil {
		return err
	}
	fmt.Printf("the payment provider's ledger: %s\n", standing(entries))
	showEntries(entries)
	fmt.Println("the shop's books")
	for _, service := range []string{stockBooks, pointsBooks} {
		entries, err := o.books(service).Entries()
		if err != nil {
			return err
		}
		showEntries(entries)
	}
	return o.showQueue()
}

func showEntries(entries []ledger.Entry) {
	for _, e := range entries {
		sayf(e.Kind, "%-12s %5d  %s", e.ID, e.Amount, e.Key)
	}
}

// standing counts the charges that were not given back.
func standing(entries []ledger.Entry) string {
	n := 0
	for _, e := range entries {
		if _, undone := ledger.Undone(entries, e.Key); e.Kind == "charge" && !undone {
			n++
		}
	}
	switch n {
	case 0:
		return "no charge"
	case 1:
		return "one charge"
	}
	return fmt.Sprintf("%d charges", n)
}

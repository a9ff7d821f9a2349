// Package simulation holds the project's own seeded simulation: random sagas on workers whose clocks disagree, with
// crashes, lapses, lost and late answers, throttling, cancels, reversals and operators. It has tests only:
//
//	go test -run Simulation -seeds 10000 ./internal/simulation
//
// A failing seed is made smaller, and the command that repeats it is printed.
package simulation

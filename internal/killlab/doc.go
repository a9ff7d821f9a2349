// Package killlab kills real processes: three workers run sagas on one store, and a parent ends them with SIGKILL at
// random times and starts others. What the sagas do to the outside goes to a ledger in a process of its own, which writes
// every call down. At the end the workers finish without being killed, and ledger and records are held against each
// other. It has tests only:
//
//	go test -run Kill ./internal/killlab -kills 1000 -v
//
// Times are those of the machine, so a seed repeats what is asked of the workers, and not what becomes of it.
package killlab

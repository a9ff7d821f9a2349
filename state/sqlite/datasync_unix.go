//go:build unix

package sqlite

import (
	"sync"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// syncData has commits call fdatasync, as SQLite does when it is configured for a system that has the call; fsync would
// also push the log's timestamps through the file system's own journal. Where SQLite never calls it, nothing changes.
//
// It is what modernc.org/sqlite.Fdatasync does. Importing that package would register a driver with database/sql, under a
// name that other drivers take too, and registering a name twice is a panic.
var syncData = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	sqlite3.Xmodernc_fdatasync(tls, 1)
})

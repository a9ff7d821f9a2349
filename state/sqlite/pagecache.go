package sqlite

import (
	"errors"

	"zombiezen.com/go/sqlite"
)

// slack is a connection to no file, which is never used: what it may keep in the page cache is there for the others.
//
// The driver's SQLite has one page cache for all connections of the process (it is built with
// SQLITE_ENABLE_MEMORY_MANAGEMENT), as large as their cache_size together. A connection that has its share in full takes
// pages from the others; one that pages were taken from asks for new ones; and once there are more than all may have,
// SQLite drops every page at the moment at which it is let go of, so that those are lost first that are needed next. After a
// few long lists the committer would read each page from the disk's cache again, for every write, until there is another
// read.
func slack() (conn, error) {
	raw, err := sqlite.OpenConn("", sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return conn{}, err
	}
	c := conn{raw}
	if err := c.script(`PRAGMA cache_size = 4000`); err != nil { // pages: 16 MiB, twice what all readers may have
		return conn{}, errors.Join(err, c.Close())
	}
	return c, nil
}

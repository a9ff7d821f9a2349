package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
)

// opening is a file that is on its way to be a store's. All that it waits for shares the busy timeout.
type opening struct {
	path     string
	cfg      config
	deadline time.Time
	c        conn
	turn     turn // nil until the file is known to be ours
}

// prepareFile opens the file for writing, and makes or upgrades what is in it.
func prepareFile(ctx context.Context, path string, cfg config) (*opening, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, explain(path, "open", err)
	}
	o := &opening{path: path, cfg: cfg, deadline: time.Now().Add(cfg.busyTimeout), c: conn{raw}}
	o.c.SetInterrupt(ctx.Done())
	err = o.patiently(ctx)
	o.c.SetInterrupt(nil)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, explain(path, "open", errors.Join(err, o.close()))
	}
	return o, nil
}

func (o *opening) close() error {
	if o.turn != nil {
		o.turn.close()
	}
	return o.c.Close()
}

// patiently tries again while the file is locked: SQLite doesn't wait for a lock that it needs on top of one that it has,
// as when the mode of a new file is changed by several processes at once.
func (o *opening) patiently(ctx context.Context) error {
	for {
		err := o.prepare(ctx)
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || !time.Now().Before(o.deadline) {
			return err
		}
		timer := time.NewTimer(openRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

const openRetry = 5 * time.Millisecond

// prepare only reads a file that is as it should be: beside a process that is busy writing, the lock for a write may not
// be had in time. What has to be written is written in a turn.
func (o *opening) prepare(ctx context.Context) error {
	o.c.waitUntil(o.deadline)
	// Before anything is written: is it ours?
	ready, err := check(o.c, o.cfg.migrations)
	if err != nil {
		return err
	}
	if o.turn == nil {
		o.turn = openTurn(o.path+".turn", turnTimeout(o.cfg.busyTimeout))
	}
	if err := configure(o.c); err != nil {
		return err
	}
	if ready {
		return o.writable()
	}
	if o.turn.acquire(ctx.Done()) {
		defer o.turn.release()
	}
	o.c.waitUntil(o.deadline)
	if err := logAhead(o.c); err != nil {
		return err
	}
	return upgrade(o.c, o.cfg.migrations)
}

// writable fails if the file can only be read, which SQLite says before it looks at any lock. The lock is not waited for:
// whether the file is locked is not the question.
func (o *opening) writable() error {
	o.c.SetBusyTimeout(0)
	defer o.c.waitUntil(o.deadline)
	err := o.c.script(`DELETE FROM run_record WHERE false`)
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		return nil
	}
	return err
}

// configure sets what holds for the connection and is not kept in the file.
func configure(c conn) error {
	for _, p := range []string{
		`PRAGMA synchronous = FULL`,            // a commit is on the disk before it is answered
		`PRAGMA wal_autocheckpoint = 2000`,     // the log is moved into the file every 8 MiB, which takes two more syncs
		`PRAGMA journal_size_limit = 67108864`, // a log that had to grow further is cut again
		`PRAGMA temp_store = MEMORY`,           // nothing here needs much
	} {
		if _, err := c.word(p); err != nil {
			return err
		}
	}
	return nil
}

// logAhead puts the file into WAL mode, which it keeps.
func logAhead(c conn) error {
	mode, err := c.word(`PRAGMA journal_mode = WAL`)
	if err != nil {
		return err
	}
	if mode != walMode {
		return fmt.Errorf("the file can't be put into WAL mode (it stays in mode %q); network file systems are not supported", mode)
	}
	return nil
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
)

// Open opens the file at path, which is made if it isn't there; its folder must be. A path is a path and no URI: with "file:"
// before it or "?mode=ro" behind it, it names another file. Close the store when you are done.
//
// The error names the file and says what to do: it is no SQLite file, or another program's; it was made by a newer version
// of the library; it, or its folder, is missing, read-only or full. In none of these cases anything in it is changed.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	cfg := newConfig(opts)
	syncData()
	path, err := locate(path)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: %s: open: %w", path, err)
	}
	c, err := prepareFile(ctx, path, cfg)
	if err != nil {
		return nil, err
	}
	s, err := assemble(c, path, cfg)
	if err != nil {
		return nil, explain(path, "open", errors.Join(err, c.Close()))
	}
	go s.writer.loop()
	return s, nil
}

func assemble(c conn, path string, cfg config) (*Store, error) {
	tx, err := newTx(c, cfg.maxRecord)
	if err != nil {
		return nil, err
	}
	rs, err := openReaders(path, cfg.busyTimeout, min(runtime.GOMAXPROCS(0), maxReaders))
	if err != nil {
		return nil, err
	}
	room, err := slack()
	if err != nil {
		return nil, errors.Join(err, rs.close())
	}
	q := newQueue()
	w := &writer{
		path: path, tx: tx, queue: q, turn: openTurn(path+".turn", cfg.busyTimeout), clock: cfg.clock, points: cfg.points,
		timeout: cfg.busyTimeout, purger: &purger{}, ended: make(chan struct{}),
	}
	c.SetBusyTimeout(0)
	return &Store{
		path: path, clock: cfg.clock, maxRecord: cfg.maxRecord, writer: w, readers: rs, slack: room, memory: newMemory(cfg.oblivious),
		unreadable: cfg.unreadable,
	}, nil
}

// locate makes the path absolute, so that a change of the working folder does no harm, and looks at what SQLite would
// only call "unable to open".
func locate(path string) (string, error) {
	if path == "" || path == ":memory:" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("sqlite: the path %q names no file; for a store in memory see package memory", path)
	}
	if strings.HasPrefix(path, "file:") {
		return "", fmt.Errorf("sqlite: %q is a URI; give the path of the file alone", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite: %s: %w", path, err)
	}
	if target, err := filepath.EvalSymlinks(abs); err == nil {
		abs = target // the side files stand beside the file itself, for every process the same
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(abs)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("sqlite: %s: make its folder first: %w", abs, err)
		}
	case err != nil:
		return "", fmt.Errorf("sqlite: %s: this process may not look into its folder: %w", abs, err)
	case info.IsDir():
		return "", fmt.Errorf("sqlite: %s is a folder; name a file in it", abs)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("sqlite: %s is not a regular file", abs)
	}
	return abs, nil
}

// prepareFile opens the file for writing, and makes or upgrades what is in it.
func prepareFile(ctx context.Context, path string, cfg config) (conn, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return conn{}, explain(path, "open", err)
	}
	c := conn{raw}
	c.SetBusyTimeout(cfg.busyTimeout)
	c.SetInterrupt(ctx.Done())
	err = patiently(ctx, cfg.busyTimeout, func() error { return setUp(c, cfg.migrations) })
	c.SetInterrupt(nil)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return conn{}, explain(path, "open", errors.Join(err, c.Close()))
	}
	return c, nil
}

// patiently tries again while the file is locked: SQLite doesn't wait for a lock that it needs on top of one that it has,
// as when the mode of a new file is changed by several processes at once.
func patiently(ctx context.Context, timeout time.Duration, try func() error) error {
	for start := time.Now(); ; {
		err := try()
		if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || time.Since(start) >= timeout {
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

func setUp(c conn, m []migration) error {
	// Before anything is written: is it ours?
	if err := check(c, len(m)); err != nil {
		return err
	}
	mode, err := c.word(`PRAGMA journal_mode = WAL`)
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file can't be put into WAL mode (it stays in mode %q); network file systems are not supported", mode)
	}
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
	return upgrade(c, m)
}

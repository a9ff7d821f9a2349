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
	o, err := prepareFile(ctx, path, cfg)
	if err != nil {
		return nil, err
	}
	s, err := assemble(o, path, cfg)
	if err != nil {
		return nil, explain(path, "open", errors.Join(err, o.close()))
	}
	go s.writer.loop()
	return s, nil
}

func assemble(o *opening, path string, cfg config) (*Store, error) {
	tx, err := newTx(o.c, cfg.maxRecord)
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
		path: path, tx: tx, queue: q, turn: o.turn, clock: cfg.clock, points: cfg.points,
		timeout: cfg.busyTimeout, purger: &purger{}, ended: make(chan struct{}),
	}
	o.c.SetBusyTimeout(0)
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

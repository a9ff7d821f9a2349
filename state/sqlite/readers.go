package sqlite

import (
	"context"
	"errors"
	"time"

	"zombiezen.com/go/sqlite"
)

// maxReaders is the most connections that read at once.
const maxReaders = 4

// readers are connections that only read. In WAL mode they never wait for the writer, and each statement sees all that
// was committed before it began.
type readers struct {
	path   string
	busy   time.Duration
	free   chan conn // those without a connection yet are zero
	closed chan struct{}
}

// openReaders opens one connection, to see that it can be done; the others follow when they are needed.
func openReaders(path string, busy time.Duration, n int) (*readers, error) {
	r := &readers{path: path, busy: busy, free: make(chan conn, n), closed: make(chan struct{})}
	first, err := r.open()
	if err != nil {
		return nil, err
	}
	r.free <- first
	for range n - 1 {
		r.free <- conn{}
	}
	return r, nil
}

func (r *readers) open() (conn, error) {
	raw, err := sqlite.OpenConn(r.path, sqlite.OpenReadOnly)
	if err != nil {
		return conn{}, err
	}
	raw.SetBusyTimeout(r.busy)
	return conn{raw}, nil
}

// with calls read with a connection of its own.
func (r *readers) with(ctx context.Context, read func(conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-r.closed:
		return ErrClosed
	default:
	}
	var c conn
	select {
	case <-r.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	case c = <-r.free:
	}
	if c.Conn == nil {
		var err error
		if c, err = r.open(); err != nil {
			r.free <- conn{}
			return err
		}
	}
	err := read(c)
	r.free <- c
	return err
}

// snapshot calls read in a transaction, so that all it reads is of one moment.
func (r *readers) snapshot(ctx context.Context, read func(conn) error) error {
	return r.with(ctx, func(c conn) error {
		if err := c.exec(`BEGIN`); err != nil {
			return err
		}
		err := read(c)
		if end := c.exec(`COMMIT`); err == nil {
			err = end
		}
		return err
	})
}

// close waits for the reads in hand.
func (r *readers) close() error {
	close(r.closed)
	var err error
	for range cap(r.free) {
		if c := <-r.free; c.Conn != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

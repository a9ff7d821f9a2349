package sqlite

import (
	"errors"
	"strings"
	"time"
	"unsafe"

	"zombiezen.com/go/sqlite"
)

// conn is one connection to the file, for one goroutine at a time.
type conn struct {
	*sqlite.Conn
}

// waitUntil makes the connection wait for locks up to a moment, which may have passed.
func (c conn) waitUntil(deadline time.Time) { c.SetBusyTimeout(time.Until(deadline)) }

// exec runs a statement that returns no rows that matter. The statement is prepared once.
func (c conn) exec(query string) error {
	s, err := c.Prepare(query)
	if err != nil {
		return err
	}
	return run(s)
}

// script runs statements that are not kept.
func (c conn) script(queries string) error {
	for queries = strings.TrimSpace(queries); queries != ""; {
		s, trailing, err := c.PrepareTransient(queries)
		if err != nil {
			return err
		}
		_, err = s.Step()
		if err := errors.Join(err, s.Finalize()); err != nil {
			return err
		}
		queries = strings.TrimSpace(queries[len(queries)-trailing:])
	}
	return nil
}

// number is the first column of the first row of a query, 0 if there is none.
func (c conn) number(query string) (n int64, err error) {
	err = c.first(query, func(s *sqlite.Stmt) { n = s.ColumnInt64(0) })
	return n, err
}

// word is the same as a text.
func (c conn) word(query string) (text string, err error) {
	err = c.first(query, func(s *sqlite.Stmt) { text = s.ColumnText(0) })
	return text, err
}

func (c conn) first(query string, take func(*sqlite.Stmt)) error {
	s, _, err := c.PrepareTransient(query)
	if err != nil {
		return err
	}
	row, err := s.Step()
	if row {
		take(s)
	}
	return errors.Join(err, s.Finalize())
}

// run runs a statement whose rows don't matter. What is bound to it stays bound.
func run(s *sqlite.Stmt) error {
	_, err := s.Step()
	return done(s, err)
}

// done ends a statement. A statement that failed fails again when it is reset, which says nothing new.
func done(s *sqlite.Stmt, err error) error {
	reset := s.Reset()
	if err == nil {
		err = reset
	}
	return err
}

// view is b as a string that must not outlive b: to bind a text copies it at once.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// columnBytes is a copy of a column, nil for NULL.
func columnBytes(s *sqlite.Stmt, col int) []byte {
	if s.ColumnIsNull(col) {
		return nil
	}
	b := make([]byte, s.ColumnLen(col))
	s.ColumnBytes(col, b)
	return b
}

func columnTime(s *sqlite.Stmt, col int) time.Time {
	if s.ColumnIsNull(col) {
		return time.Time{}
	}
	return time.UnixMilli(s.ColumnInt64(col)).UTC()
}

func columnSecond(s *sqlite.Stmt, col int) time.Time {
	if s.ColumnIsNull(col) {
		return time.Time{}
	}
	return time.Unix(s.ColumnInt64(col), 0).UTC()
}

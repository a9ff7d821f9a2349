package sqlite

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrForeignFile is the class of Open's error for a SQLite file of another program.
var ErrForeignFile = errors.New("the file belongs to another program; choose another path, nothing in it was changed")

// ErrNewerFile is the class of Open's error for a file that a newer version of the library has upgraded.
var ErrNewerFile = errors.New("the file was upgraded by a newer version of the library; use that version")

// walMode is SQLite's name for the mode in which it writes to a log first.
const walMode = "wal"

// check reads whose file it is, and tells whether it is ready for use as it is. All that it reads is of one moment: another
// process may just be making the file.
func check(c conn, m []migration) (ready bool, err error) {
	if err := c.exec(`BEGIN`); err != nil {
		return false, err
	}
	_, current, err := inspect(c, m)
	mode := ""
	if err == nil {
		mode, err = c.word(`PRAGMA journal_mode`)
	}
	return current && mode == walMode, errors.Join(err, c.exec(`ROLLBACK`))
}

// inspect reads the version of the schema, and tells whether it is the newest one and has this library's views.
func inspect(c conn, m []migration) (v int, current bool, err error) {
	if v, err = version(c, len(m)); err != nil {
		return 0, false, err
	}
	shown, err := c.word(`SELECT group_concat(sql, char(59, 10, 10) ORDER BY rowid) FROM sqlite_schema WHERE type = 'view'`)
	return v, v == len(m) && shown+";" == strings.TrimSpace(views), err
}

// version of the schema; 0: a new file.
func version(c conn, newest int) (int, error) {
	app, err := c.number(`PRAGMA application_id`)
	if err != nil {
		return 0, err
	}
	v, err := c.number(`PRAGMA user_version`)
	if err != nil {
		return 0, err
	}
	objects, err := c.number(`SELECT count(*) FROM sqlite_schema`)
	switch {
	case err != nil:
		return 0, err
	case app == 0 && v == 0 && objects == 0:
		return 0, nil
	case app != applicationID:
		return 0, fmt.Errorf("%w (application_id %d)", ErrForeignFile, app)
	case int(v) > newest:
		return 0, fmt.Errorf("%w (schema version %d; this one knows up to %d)", ErrNewerFile, v, newest)
	}
	return int(v), nil
}

// upgrade leads the file to the newest version in one transaction: an upgrade that fails, or whose process dies, leaves
// the file as it was. The version is read again inside, since another process may be about the same. Views hold no data,
// so they are made anew whenever they aren't those of this version of the library, whichever version is older.
func upgrade(c conn, m []migration) (err error) {
	if err := c.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil && !c.AutocommitEnabled() {
			err = errors.Join(err, c.exec(`ROLLBACK`))
		}
	}()
	v, current, err := inspect(c, m)
	if err != nil {
		return err
	}
	if current {
		return c.exec(`ROLLBACK`)
	}
	if err := c.script(dropViews); err != nil {
		return err
	}
	for ; v < len(m); v++ {
		if err := c.script(string(m[v])); err != nil {
			return fmt.Errorf("schema version %d: %w", v+1, err)
		}
	}
	if err := c.script(views); err != nil {
		return err
	}
	for pragma, n := range map[string]int{"application_id": applicationID, "user_version": v} {
		if err := c.script(`PRAGMA ` + pragma + ` = ` + strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return c.exec(`COMMIT`)
}

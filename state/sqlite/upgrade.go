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

// check reads whose file it is and which version it has, all of one moment: another process may just be making it.
func check(c conn, newest int) error {
	if err := c.exec(`BEGIN`); err != nil {
		return err
	}
	_, err := version(c, newest)
	return errors.Join(err, c.exec(`ROLLBACK`))
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
	v, err := version(c, len(m))
	if err != nil {
		return err
	}
	shown, err := c.word(`SELECT group_concat(sql, char(59, 10, 10) ORDER BY rowid) FROM sqlite_schema WHERE type = 'view'`)
	if err != nil {
		return err
	}
	if v == len(m) && shown+";" == strings.TrimSpace(views) {
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

package sqlite

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
)

var (
	// ErrClosed is returned by every method once Close has been called. Nothing was written.
	ErrClosed = errors.New("sqlite: the store is closed")
	// ErrInDoubt is the class of a write whose COMMIT failed, or was not waited for: it may or may not have been made. The
	// caller sends the same write again (same WriteID) or reads, as after every error that [state.Store] does not name.
	ErrInDoubt = errors.New("whether it was written is in doubt")
)

// advice says what to do about SQLite's result codes; primary codes, but for the two extended ones.
var advice = map[sqlite.ResultCode]string{
	sqlite.ResultNotADB:            "the file is not a SQLite database; choose another path, nothing in it was changed",
	sqlite.ResultCorrupt:           "the file is damaged; stop all writers, keep a copy, and recover it with the sqlite3 shell's .recover or from a backup",
	sqlite.ResultFull:              "the disk (or the file's size limit) is full; make room, nothing that was committed is lost",
	sqlite.ResultReadOnly:          "the file, or the folder it is in, is read-only for this process; writing needs both",
	sqlite.ResultCantOpen:          "the file can't be opened; check that its folder exists, that it is no folder itself, and the permissions of both",
	sqlite.ResultBusy:              "another process kept the file locked for longer than the busy timeout; try again, or see WithBusyTimeout",
	sqlite.ResultPerm:              "this process may not use the file; check its permissions and those of its folder",
	sqlite.ResultAuth:              "this process may not use the file; check its permissions and those of its folder",
	sqlite.ResultIOErr:             "the disk failed; look at the system's log, nothing that was committed is lost as long as the disk keeps it",
	sqlite.ResultNoMem:             "out of memory",
	sqlite.ResultTooBig:            "a payload is over SQLite's own limit of about 1 GB",
	sqlite.ResultProtocol:          "the file's locks don't work; network file systems are not supported",
	sqlite.ResultIOErrLock:         "the file's locks don't work; network file systems are not supported",
	sqlite.ResultReadOnlyDirectory: "the folder is read-only for this process; SQLite keeps two more files beside the database",
}

// explain is an error of SQLite's with the file's name and what to do about it.
func explain(path, doing string, err error) error {
	if err == nil {
		return nil
	}
	code := sqlite.ErrCode(err)
	what, ok := advice[code]
	if !ok {
		what, ok = advice[code.ToPrimary()]
	}
	if !ok {
		return fmt.Errorf("sqlite: %s: %s: %w", path, doing, err)
	}
	return fmt.Errorf("sqlite: %s: %s: %s: %w", path, doing, what, err)
}

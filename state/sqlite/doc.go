// Package sqlite keeps records in a SQLite file: durable, without a server or any set-up, for one machine.
//
//	store, err := sqlite.Open(ctx, "runs.db")
//	defer store.Close()
//
// The driver is SQLite in pure Go, so programs need no C compiler and cross-compile as usual.
//
// # Durability
//
// A write is answered when it is on the disk (WAL mode, synchronous=FULL). A process that is killed at any moment loses
// nothing that was answered, and leaves no write half made. When COMMIT itself fails, or isn't waited for any longer,
// nobody knows whether the write was made: the error is of class [ErrInDoubt], never a conflict, and the library sends the
// write again or reads.
//
// "On the disk" is fdatasync's word for it where the system has that call (Linux, FreeBSD, illumos, NetBSD), as in the SQLite
// that these systems ship; elsewhere it is fsync's. The driver knows one setting for the whole process, which the first
// [Open] turns on. Where a sandbox forbids the call, turn it off again behind that: modernc.org/sqlite.Fdatasync(false).
//
// # Several at once
//
// Writes of one process that come at the same time share one transaction and one sync, and each gets its own answer. The
// committer waits up to 300 µs for the writers of its last round, and never for a single one. Reads have connections of
// their own: they don't wait for writes, and see all that was answered before.
//
// Several processes on one machine may have the same file open. They take turns by an advisory lock on a side file, which is
// for fairness alone: SQLite's own lock is what keeps writers apart. The turn is waited for during half of the busy timeout
// ([WithBusyTimeout]) at most, SQLite's lock during what is left of it. Where there is no such lock (Windows), SQLite's own
// has to do, and a busy process may keep another waiting for seconds. [Open] only reads a file that is as this version of the
// library makes it, so that it waits for nobody; to make or upgrade a file, it takes a turn.
//
// Network file systems are not supported: their locks don't work well enough for SQLite.
//
// # Files
//
// The file is made with the permissions that the process's umask leaves of 0644, and inputs and results stand in it as they
// are: keep it in a folder that only its programs may look into. Beside runs.db stand runs.db-wal and runs.db-shm, which belong to the database and go when the last process closes it,
// and runs.db.turn, which is empty and stays. Copy the file only while nobody has it open; at other times let the sqlite3
// shell's .backup or VACUUM INTO make the copy. Don't open the file by other means in a process that has a store on it (not
// even to read it): on Unix, closing it would drop SQLite's locks. Don't move, replace or delete any of the files while a
// process has the store open: it would go on with the file that it has opened, which no other finds any more.
//
// Records that have expired are removed on the way of other writes, a few at a time. Their room is used again; to give it
// back to the file system, run VACUUM when there is time for it.
//
// # Looking into it
//
// Four views show what is in the file, with any SQL tool and while processes are at work on it. Payloads are JSON text, times
// are in UTC:
//
//	runs          a row per run: idempotency_key, operation, status, current_step, ends_as, failure_message,
//	              blocked_step, blocked_message, input, response_data, owner, revision, in_progress_expiration, created_at, expiration, ...
//	run_steps     a row per step: idempotency_key, position, step, status, attempts, unknown, output, error_message, ...
//	run_messages  a row per unsent message: idempotency_key, position, id, topic, body, parked, claimed_until, ...
//	run_audit     a row per intervention: idempotency_key, position, at, actor, verb, step, note
//
// So what needs a person, and how far each run got:
//
//	SELECT idempotency_key, blocked_step, blocked_message FROM runs WHERE status = 'BLOCKED';
//	SELECT step, status, attempts, output FROM run_steps WHERE idempotency_key = 'tenant-a#create_order#order-001';
//
// Only read: what is written past the library isn't fenced. The tables below the views (run_record, run_about, run_outbox,
// run_payload) change with the version of the schema, which is in PRAGMA user_version. [Open] upgrades a file, in one
// transaction, and refuses one that a newer version of the library has upgraded.
package sqlite

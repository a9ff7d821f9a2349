// Package sqlite is the embedded store: records in one SQLite file, with no server and no cgo.
//
// Several goroutines and several processes of one machine may use a file at once. What is answered is durable: the file is
// in WAL mode with synchronous=FULL. Concurrent writes of one process share a transaction and one sync, and each gets its
// own answer; processes take turns by an advisory lock on a file beside it ("<path>.turn"), which is for fairness alone.
// An error from COMMIT leaves open whether the write was made, and is not a refusal.
//
// Network file systems are not supported: SQLite's locks, and the shared memory of its WAL, don't work there.
//
// # Looking into it
//
// Any SQL tool can look into the file, also while it is in use. The views runs, run_steps, run_messages and run_audit are
// made for that; the tables below them may change with the version of the library. The file's schema is upgraded when it
// is opened, and a file of a later version is refused.
//
//	SELECT idempotency_key, status, current_step, failure_code FROM runs WHERE status = 'BLOCKED';
//	SELECT step, status, attempts, output FROM run_steps WHERE idempotency_key = 'tenant-a#create_order#order-001';
package sqlite

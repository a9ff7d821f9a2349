// Package saga runs business operations of several steps so that the same request again does no harm, goes on where it
// stopped, is COMPLETED only when all of it is done, and is undone when it can't be.
//
// A [Definition] declares ordered, idempotent steps (package steps). An [Orchestrator] runs it on a store: one record per
// [Key] holds the current step and a flag per step. What is promised and what is not stands in docs/guarantees.md.
//
// # Glossary
//
//   - Saga: a business operation of several local transactions, each of which can be undone (Garcia-Molina and Salem, 1987).
//   - Run: one execution of a saga, named by its key, over any number of processes and take-ups.
//   - Step: one idempotent function of the run's input. Done, not applied, or unknown.
//   - Unknown: an attempt ended without a definite answer, so its effect may or may not stand.
//   - Compensation: the function that undoes a step.
//   - Pivot: the step after which there is no way back.
//   - Idempotency key, derived key: the key that a call to the outside carries, derived from the run's key and the step.
//   - Lease: the time for which a holder alone may try. It decides when another may try, never who may write.
//   - Fencing: every write of a holder is conditional on the owner and the revision that it has read.
//   - Take-up: the write by which a holder makes a run its own. A take-over is one from a holder whose lease has lapsed.
//   - Outbox: the messages that a step's commit makes due.
//   - Recovery: taking up runs that nobody is at work on.
package saga

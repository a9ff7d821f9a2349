// Package steps declares the steps of a saga: what is done, how it is undone, how often it is tried, and what is known
// of an attempt that ended without an answer.
//
// A step is an idempotent function of the run's input. Each call of it carries a key derived from the run's key, the same
// on every attempt, in every process, at any time (see [DerivedKey]); passed to an external API as its idempotency key it
// makes a second call after a crash harmless.
//
// An attempt ends in one of three ways: done (nil), not applied ([Permanent]), or unknown (everything else: a transient
// error, a timeout, a panic, a cancellation, a crash). Going backwards undoes what is done and what is unknown.
package steps

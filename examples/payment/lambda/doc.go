// Command lambda is the order of the payment example as a Lambda function: a message of a queue is an order. README.md has
// the commands that run it on your machine, in the emulator that also kills it.
//
// It is told what to do by its environment:
//
//   - PAYMENT_DB: the SQLite file where runs are recorded, the services' books beside it.
//   - PAYMENT_TABLE: a DynamoDB table in its place. On Lambda, whose environments share no disk, there is no other way.
//   - PAYMENT_PROVIDER: the payment provider's URL; one is started within the function otherwise.
//   - PAYMENT_SWEEP: when set, this is the scheduled function: it recovers runs and sends messages.
//   - PAYMENT_CRASH_AFTER: the step after whose first attempt the process dies, before that is recorded.
package main

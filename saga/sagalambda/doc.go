// Package sagalambda runs sagas in AWS Lambda, for every way in which a function is called: a record of an event is a run,
// and a record that comes again does no harm.
//
//	checkout, err := saga.New(NewCheckout(stock, cards), store)
//	...
//	key, err := sagalambda.KeyAt("order_no", sagalambda.TenantAt("shop"))
//	...
//	lambda.Start(sagalambda.SQS(checkout, sagalambda.Body[Order](key)))
//
// [SQS], [Kinesis] and [DynamoDBStream] report which records are to be delivered again, so their event source mapping
// must have ReportBatchItemFailures. [SNS], [S3] and [Event] are for asynchronous invocations, [Invoke] is for a direct
// call, [APIGateway] for API Gateway and function URLs (beside package sagahttp), and [Scheduled] recovers what no event
// comes for any more. docs/lambda.md has the template of a function with its queue, and says how to choose the times.
//
// # What is acknowledged
//
// A completed run, now or before. A run that has failed for good, since it fails again under the same key ([WithFailed]),
// and one that is blocked, since it waits for an operator ([WithBlocked]). Everything else is delivered again.
//
// # Time
//
// No step starts that can't end before the function's timeout, and the handler returns before it. The lease is never
// longer than the time that is left (plus a margin), so that the run of a function that was killed can be taken up soon
// after.
package sagalambda

// Package dynamostore keeps records in one DynamoDB table, for many machines and for Lambda.
//
// The path of a run uses single-item conditional writes alone: a run of N steps costs one PutItem and N UpdateItems, no
// transaction and no read. A duplicate of an ended key costs one write that fails and brings the record back. What that
// comes to in money, and how the table is made, stands in docs/dynamodb.md.
//
// # The table
//
// The partition key is idempotency_key, the sort key part. The header of a run is the item whose part is "run". Payloads
// of more than 256 bytes, and those that are no UTF-8, live in sibling items of the same partition, whose part begins
// with a slash and ends in the write_id of the header write that makes them count:
//
//	/input/<write_id>  /step/<position>/<write_id>  /response/<write_id>  /message/<sequence>/<write_id>
//
// A sibling is written before the header that refers to it, so that a holder who has lost its lease can leave one behind
// that nobody refers to, but never replace the one that counts. Siblings expire a year after the retention, counted from
// their writing; with a retention of 0 they never do.
//
// The index "open" (open_shard, created_at; keys only) holds the headers of the runs that have not ended or have unsent
// messages.
//
// # The header
//
// Attributes that would be empty are left out. Times are in milliseconds since 1970, expiration in seconds; retention is
// in seconds. failure and cancel are JSON, audit is a list of JSON, input and response_data are strings, or {"at":
// write_id} when they are in a sibling.
//
// plan is the names of the steps, separated by commas, with an exclamation mark behind the pivot; a comma, a percent or an
// exclamation mark in a name is percent-escaped. steps is a map from a step's position to one string:
//
//	<status><attempts>[?]|<started>[+<took>]|<output>
//
// The status is P pending, S started, D done, K skipped, C compensating, U compensated; the question mark says that it is
// unknown whether an attempt took effect. started and took are in milliseconds, counted from created_at and from the
// start. Zeros and what is empty at the end are left out. So
//
//	D1|12+340|{"charge":"ch_1"}
//
// is a step that was done at the first attempt, which began 12 ms after the run and took 340 ms. A time that begins with
// @ counts from 1970 instead of created_at. An output that begins with @ is in the sibling with that write_id. In front
// of the output may stand an exclamation mark, a JSON object with what a step rarely has (error, undo, undo_error, name),
// and a bar.
//
// outbox is a map from a message's ID, less the run's key, to one string:
//
//	<sequence>|<time>|<topic>|<key>|<type>|<content type>|<attributes>|<parked>|<write_id of the sibling>|<body>
//
// A percent or a bar in a field is percent-escaped, a content type that is left out is application/json and a "-" is an
// empty one. The relay's claim is in the same map, as token and until; relay_write_id names the last write that ended a
// claim, so that a relay whose answer was lost knows its own write.
package dynamostore

// Command payment is an order that survives the death of its process: reserve stock, charge a card, grant points, notify.
//
//	go run ./examples/payment
//
// Without flags it starts three processes of itself, one after the other, with the same order. The first one dies right
// after the card was charged and before that was recorded; the second goes on; the third gets the stored result. At the end
// it prints the ledger of the payment provider, one charge, and the queue, one message.
//
// With a flag it is one such process; --help lists them. It ends with code 0 when the order has its answer, paid or
// declined; 3 when it has died on purpose; 2 for a wrong flag; and 1 for any other error.
//
//	go run ./examples/payment --http :8080
//
// With --http it serves orders until it is interrupted; http.go shows the requests.
//
//	go run ./examples/payment --store dynamodb --endpoint http://127.0.0.1:8000
//	go run ./examples/payment --sqs https://sqs.eu-central-1.amazonaws.com/123456789012/orders
//
// With --store dynamodb the same walk keeps its runs on a table, and with --sqs its message goes to a real queue. Region and
// credentials come from the environment: AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or a profile. aws.go shows
// what that takes, and notify.go how a relay is run.
//
// Where to read on: checkout is the saga and how it calls the provider, order.go what a program does with it, provider and
// shop are the other side.
package main

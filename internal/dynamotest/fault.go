package dynamotest

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Request is a call as the proxy sees it.
type Request struct {
	// Operation such as "UpdateItem".
	Operation string
	// Body is the call in JSON.
	Body []byte
}

// Write tells whether the call writes an item.
func (r Request) Write() bool {
	return r.Operation == "PutItem" || r.Operation == "UpdateItem" || r.Operation == "DeleteItem"
}

// Fault is what goes wrong with a call. The zero value is nothing.
type Fault struct {
	// Unsent keeps the call from the server.
	Unsent bool
	// Answer is sent in place of the server's.
	Answer *Answer
	// Drop closes the connection instead of answering.
	Drop bool
	// Delay is how long the answer waits.
	Delay time.Duration
}

// Answer is an error of the server.
type Answer struct {
	Status  int
	Code    string
	Message string
}

// DropAnswer loses the answer after the server has done what it was asked.
func DropAnswer() *Fault { return &Fault{Drop: true} }

// FailBefore is an internal error of a server that has done nothing.
func FailBefore() *Fault { return Refuse(internal.Status, internal.Code, internal.Message) }

// FailAfter is an internal error of a server that has done what it was asked.
func FailAfter() *Fault { return &Fault{Answer: &internal} }

// Refuse answers with an error in place of the server.
func Refuse(status int, code, message string) *Fault {
	return &Fault{Unsent: true, Answer: &Answer{status, code, message}}
}

// Throttle is the server's refusal of too many requests.
func Throttle() *Fault {
	return Refuse(http.StatusBadRequest, "ProvisionedThroughputExceededException", "The level of configured provisioned throughput for the table was exceeded.")
}

// TransactionConflict is the server's refusal while someone else's transaction writes to the item.
func TransactionConflict() *Fault {
	return Refuse(http.StatusBadRequest, "TransactionConflictException", "Transaction is ongoing for the item")
}

// Slow lets the answer wait.
func Slow(d time.Duration) *Fault { return &Fault{Delay: d} }

var internal = Answer{http.StatusInternalServerError, "InternalServerError", "The request processing has failed because of an unknown error."}

// Random breaks a fifth of all calls, in every way, as the seed decides. What it returns may be called concurrently.
func Random(seed uint64) func(Request) *Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's chance
	return func(Request) *Fault {
		mu.Lock()
		defer mu.Unlock()
		switch rng.IntN(30) {
		case 0, 1:
			return DropAnswer()
		case 2:
			return FailAfter()
		case 3:
			return FailBefore()
		case 4:
			return Throttle()
		case 5:
			return Slow(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
		return nil
	}
}

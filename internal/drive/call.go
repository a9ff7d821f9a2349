package drive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// Phase is which of a definition's functions is called.
type Phase string

// The phases.
const (
	Do     Phase = "do"
	Undo   Phase = "undo"
	Probe  Phase = "probe"
	When   Phase = "when"
	Output Phase = "result"
)

// Call is what one call is given. A new one is made for every attempt, so that a function that outlives its attempt
// holds on to something that nobody reads any more.
type Call struct {
	Key     state.Key
	RunKey  string
	Step    string
	Phase   Phase
	Attempt int
	Resumed bool
	Input   json.RawMessage
	// Outputs of the steps of the plan, by position; nil entries have none. May be shorter than the plan. Never changed
	// once it was given away.
	Outputs []json.RawMessage
	// Index of the declared steps by origin. Never changed.
	Index map[any]int
	// Cause of an undo.
	Cause error
	// Decoded is shared by the calls of one holder, which are made one after the other: the input as a value of a type of
	// which a copy shares nothing.
	Decoded *any

	mu       sync.Mutex
	messages []outbox.Message
	bytes    int
	bad      error
	closed   bool
}

// ForwardKey is the derived key of the step's own call.
func (c *Call) ForwardKey() string { return c.RunKey + "/" + c.Step }

// DerivedKey is the derived key of this call.
func (c *Call) DerivedKey() string {
	if c.Phase == Undo {
		return c.ForwardKey() + "/compensate"
	}
	return c.ForwardKey()
}

// Emit collects a message until the attempt is over. A message that can't be emitted spoils the attempt: Close tells.
func (c *Call) Emit(m outbox.Message) {
	enc, err := m.Encode() // by a method of the body's, which may take its time: Close doesn't wait for it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.bad != nil {
		return
	}
	if c.Phase == When || c.Phase == Output {
		c.bad = fmt.Errorf("%w: Emit works in a step, a compensation or a probe, not in %s", outbox.ErrInvalidMessage, c.Phase)
		return
	}
	if err != nil {
		c.bad = err
		return
	}
	if enc.Key == "" {
		enc.Key = c.RunKey
	}
	enc.ID = c.DerivedKey() + "/" + strconv.Itoa(len(c.messages))
	c.bytes += enc.Size()
	switch {
	case len(c.messages) == outbox.MaxMessages:
		c.bad = fmt.Errorf("%w: more than %d messages in one step", outbox.ErrInvalidMessage, outbox.MaxMessages)
	case c.bytes > outbox.MaxBytes:
		c.bad = fmt.Errorf("%w: the messages of one step take more than %d bytes", outbox.ErrInvalidMessage, outbox.MaxBytes)
	default:
		c.messages = append(c.messages, enc)
	}
}

// Close ends the attempt: what is emitted later is dropped.
func (c *Call) Close() ([]outbox.Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.messages, c.bad
}

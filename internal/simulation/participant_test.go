package simulation

import (
	"fmt"
	"sync"
)

// participant is the outside world. It honours keys, but for the steps that say that it can't.
type participant struct {
	mu     sync.Mutex
	stands map[string]int  // effects that stand, by forward key
	closed map[string]bool // keys that are unusable
	undone map[string]bool // those of them that an undo has closed
	denied map[string]int  // by take-up, the last that was told that nothing has happened
}

func newParticipant() *participant {
	return &participant{stands: map[string]int{}, closed: map[string]bool{}, undone: map[string]bool{}, denied: map[string]int{}}
}

// probe tells whether the effect of a key stands. A no is a promise: a call of a holder before this one has no effect any
// more. Without that, a call of a holder that has lost the run could land after the library was told that it did not, and
// nothing would undo it.
func (p *participant) probe(key string, hold int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stands[key] == 0 {
		p.denied[key] = max(p.denied[key], hold)
	}
	return p.stands[key] > 0
}

// refuse is a definite answer, and so the same to every later call with that key. False: the key has its effect already,
// and that is the answer.
func (p *participant) refuse(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stands[key] == 0 {
		p.closed[key] = true
	}
	return p.stands[key] == 0
}

// do has the effect of a key. keyless: each call has one. It answers false when the key was made unusable or refused, or
// a later holder was told that nothing has happened.
func (p *participant) do(key string, keyless bool, hold int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed[key] || hold < p.denied[key]:
		return false
	case p.stands[key] == 0 || keyless:
		p.stands[key]++
	}
	return true
}

// undo undoes what stands under the key, and closes it.
func (p *participant) undo(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stands[key] = 0
	p.closed[key], p.undone[key] = true, true
}

// byHand is a person who has the effect, unless it is undone already.
func (p *participant) byHand(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.undone[key] {
		p.stands[key] = max(1, p.stands[key])
	}
}

func (p *participant) count(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stands[key]
}

// output is the result of a step: of its key alone.
func output(key string) string { return fmt.Sprintf("did %s", key) }

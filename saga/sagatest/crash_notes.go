package sagatest

import (
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// notedCall is one call that reached the outside, and where it came from.
type notedCall struct {
	key, content string
	step         string
	phase        drive.Phase
	known        bool
	n            int // in its attempt, from 1
}

// by is who made the call.
func (c notedCall) by() string { return fmt.Sprintf("the %s of step %s", c.phase, c.step) }

// group is the calls that have to be the same: what a compensation calls may depend on whether the result is known.
type group struct {
	step  string
	phase drive.Phase
	known bool
}

// notes are all calls of all trials: the run's key is the same in each, so that a key may stand for one call only.
type notes struct {
	content  map[string]string // by key, and known in a compensation
	keys     map[group]map[int]string
	seen     map[group]map[string]bool
	messages map[string]string
}

func newNotes() notes {
	return notes{content: map[string]string{}, keys: map[group]map[int]string{}, seen: map[group]map[string]bool{}, messages: map[string]string{}}
}

// note says what is wrong with a call.
func (l *lab) note(c notedCall) string {
	if c.step == "" { // nothing could be told about it, and no fault brought to it
		return fmt.Sprintf("the recorder was called without the context of a step, with key %q; hand it the one that the step was given", c.key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := group{step: c.step, phase: c.phase}
	if c.phase == drive.Undo {
		g.known = c.known
	}
	if l.notes.keys[g] == nil {
		l.notes.keys[g], l.notes.seen[g] = map[int]string{}, map[string]bool{}
	}
	first, had := l.notes.keys[g][c.n]
	if !had {
		l.notes.keys[g][c.n] = c.key
	}
	news := !l.notes.seen[g][c.key]
	l.notes.seen[g][c.key] = true
	if had && first != c.key && news {
		return fmt.Sprintf("%s made a call with a key of its own: %q once and %q another time; "+
			"a second attempt must carry the same key: pass r.IdempotencyKey(), or r.Sub(part) for each of several calls", c.by(), first, c.key)
	}
	at := fmt.Sprintf("%s %t", c.key, g.known)
	was, again := l.notes.content[at]
	if !again {
		l.notes.content[at] = c.content
	}
	if again && was != c.content {
		return fmt.Sprintf("%s made two calls under the key %q that are not the same call: first %s, then %s; "+
			"a call may depend on the input, the results of earlier steps and its key alone, not on a clock, a random number or anything that is kept elsewhere",
			c.by(), c.key, cut(was), cut(c.content))
	}
	return ""
}

// sameMessage says what is wrong with a message that arrived.
func (l *lab) sameMessage(id, content string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, again := l.notes.messages[id]
	if !again {
		l.notes.messages[id] = content
	}
	if again && was != content {
		return fmt.Sprintf("message %s is not the same in every run: first %s, then %s; it may depend on the input and the steps' results alone", id, cut(was), cut(content))
	}
	return ""
}

func cut(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

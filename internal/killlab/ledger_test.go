package killlab

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// The kinds of calls.
const (
	kindDo      = "do"
	kindUndo    = "undo"
	kindProbe   = "probe"
	kindMessage = "message"
)

// The answers beside "ok".
const (
	answerOK       = "ok"
	answerBusy     = "busy"     // try again; whether anything was done is not said
	answerDeclined = "declined" // for good, and nothing was done
	answerClosed   = "closed"   // the key was undone
	answerStale    = "stale"    // an older call than the last probe's no
	answerNo       = "no"       // of a probe
)

// call is what arrives at the ledger.
type call struct {
	Kind, Run, Step string
	// Key that the call carries; a message's ID.
	Key string
	// Of is the forward key that it is about.
	Of string `json:",omitempty"`
	// Body is the call's content, which has to be the same under the same key.
	Body     string `json:",omitempty"`
	Declines bool   `json:",omitempty"`
	// Sent is when the function began that made the call.
	Sent time.Time
	// Worker that sent it.
	Worker int
}

// line is what the ledger writes down of a call.
type line struct {
	call
	At     time.Time // when it arrived
	Took   bool      // it did something: the first of its key
	ID     string    `json:",omitempty"` // of the effect
	Answer string
}

// participant does what is asked of it once per key, as a provider does that honours idempotency keys. An undo closes the
// key that it is about. Its no to a probe holds: a call that was sent before the probe is refused after it.
type participant struct {
	mu      sync.Mutex
	rng     *rand.Rand
	out     func(line) error
	effects int
	ids     map[string]string
	undone  map[string]bool
	barred  map[string]time.Time // calls sent before are stale
	jobs    jobs
}

func newParticipant(seed uint64, out func(line) error) *participant {
	return &participant{rng: rand.New(rand.NewPCG(seed, 1)), out: out, ids: map[string]string{}, undone: map[string]bool{},
		barred: map[string]time.Time{}, jobs: newJobs()}
}

// pauses are how long a call is on its way, there and back, so that its caller can die meanwhile.
func (p *participant) pauses() (there, back time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.IntN(8000)) * time.Microsecond, time.Duration(p.rng.IntN(8000)) * time.Microsecond
}

// take does what the call asks for, writes it down, and returns the answer.
func (p *participant) take(c call) (line, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := line{call: c, At: time.Now(), Answer: answerOK}
	switch p.rng.IntN(24) {
	case 0: // before anything is done
		l.Answer = answerBusy
	case 1: // after it
		p.serve(&l)
		l.Answer = answerBusy
	default:
		p.serve(&l)
	}
	return l, p.out(l)
}

func (p *participant) serve(l *line) {
	switch l.Kind {
	case kindDo:
		p.effect(l)
	case kindUndo:
		if _, done := p.ids[l.Of]; done && !p.undone[l.Of] {
			l.Took = true
		}
		p.undone[l.Of] = true
	case kindProbe:
		id, done := p.ids[l.Of]
		l.ID = id
		if !done {
			l.Answer = answerNo
			p.barred[l.Of] = l.Sent
		}
	}
}

func (p *participant) effect(l *line) {
	id, done := p.ids[l.Key]
	switch {
	case l.Declines:
		l.Answer = answerDeclined
	case p.undone[l.Key]:
		l.Answer = answerClosed
	case done:
		l.ID = id
	case l.Sent.Before(p.barred[l.Key]):
		l.Answer = answerStale
	default:
		p.effects++
		l.ID, l.Took = fmt.Sprintf("%s-%d", l.Step, p.effects), true
		p.ids[l.Key] = l.ID
	}
}

// jobs is a queue of tasks that is delivered from at least once: what is not acknowledged comes again.
type jobs struct {
	next, limit int
	again       map[int]time.Time // when to hand a job out again
	blocked     map[int]bool
}

const (
	mostAtOnce = 12
	handAgain  = 250 * time.Millisecond
)

func newJobs() jobs {
	return jobs{limit: 1 << 30, again: map[int]time.Time{}, blocked: map[int]bool{}}
}

// job is the next one to work on; false: none for now.
func (p *participant) job() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	open := make([]int, 0, len(p.jobs.again))
	for no, at := range p.jobs.again {
		if !p.jobs.blocked[no] && !now.Before(at) {
			open = append(open, no)
		}
	}
	no := p.jobs.next
	switch {
	case len(open) > 0:
		no = slices.Min(open)
	case len(p.jobs.again) >= mostAtOnce || no >= p.jobs.limit:
		return 0, false
	default:
		p.jobs.next++
	}
	p.jobs.again[no] = now.Add(handAgain)
	return no, true
}

// report is what a worker or the parent says of a job.
type report struct {
	No int
	// Blocked: an operator has to see to it. Otherwise: it is done with, or, when Again is set, to be handed out again.
	Blocked, Again bool
}

func (p *participant) reported(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Blocked:
		p.jobs.blocked[r.No] = true
	case r.Again:
		delete(p.jobs.blocked, r.No)
		p.jobs.again[r.No] = time.Now()
	default:
		delete(p.jobs.again, r.No)
	}
}

// progress is where the queue stands.
type progress struct {
	Handed  int
	Open    []int
	Blocked []int
}

// progress also closes the queue for new jobs if asked to.
func (p *participant) progress(closing bool) progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	if closing {
		p.jobs.limit = min(p.jobs.limit, p.jobs.next)
	}
	pr := progress{Handed: p.jobs.next}
	for no := range p.jobs.again {
		pr.Open = append(pr.Open, no)
	}
	for no := range p.jobs.blocked {
		pr.Blocked = append(pr.Blocked, no)
	}
	slices.Sort(pr.Open)
	slices.Sort(pr.Blocked)
	return pr
}

// appendTo writes each line to the file at once.
func appendTo(f *os.File) func(line) error {
	return func(l line) error {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = f.Write(append(text, '\n'))
		return err
	}
}

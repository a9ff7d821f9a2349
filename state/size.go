package state

import "github.com/tsuzuki-go/tsuzuki/outbox"

// perEntry stands for what a step, a message or an audit line takes beside its texts and payloads.
const perEntry = 64

// Size is about how many bytes the record takes: its payloads and texts, and a little for the rest. Stores without a
// measure of their own hold it against [Capabilities].MaxRecord.
func (r *Record) Size() int {
	n := 4*perEntry + len(r.Key) + len(r.Operation) + len(r.Pivot) + len(r.CurrentStep) + len(r.PayloadHash) + len(r.Input) +
		len(r.Response) + len(r.Owner) + len(r.WriteID) + r.Failure.size()
	for _, name := range r.Plan {
		n += len(name)
	}
	for i := range r.Steps {
		n += r.Steps[i].size()
	}
	if r.Cancel != nil {
		n += len(r.Cancel.Reason) + len(r.Cancel.Actor)
	}
	for i := range r.Outbox.Messages {
		n += messageSize(r.Outbox.Messages[i].Message) + len(r.Outbox.Messages[i].Parked)
	}
	return n + auditSize(r.Audit)
}

// Growth is by how many bytes at most the change lets [Record.Size] grow.
func (c *Change) Growth() int {
	n := len(c.CurrentStep) + len(c.Owner) + len(c.WriteID) + len(c.Pivot) + len(c.Response) + c.Failure.size()
	for _, name := range c.Plan {
		n += len(name)
	}
	for i := range c.Steps {
		n += c.Steps[i].size()
	}
	for _, m := range c.Messages {
		n += messageSize(m)
	}
	return n + auditSize(c.Audit)
}

// Payload is by how many bytes at most the change lets the payloads of r grow: outputs, the result and messages; a null
// counts as none. Stores never refuse a change that brings none for its size, so that how a run went on can always be
// recorded: a step that can't be would be called again.
func (c *Change) Payload(r *Record) int {
	n := 0
	for i := range c.Steps {
		n += c.Steps[i].payload(r)
	}
	if more := len(c.Response) - len(r.Response); more > 0 && string(c.Response) != "null" {
		n += more
	}
	for _, m := range c.Messages {
		n += messageSize(m)
	}
	return n
}

func (s *StepChange) payload(r *Record) int {
	if string(s.Output) == "null" {
		return 0
	}
	n := len(s.Output)
	if s.Index >= 0 && s.Index < len(r.Steps) {
		n -= len(r.Steps[s.Index].Output)
	}
	return max(n, 0)
}

func (s *StepRecord) size() int {
	return perEntry + len(s.Name) + len(s.Output) + s.Error.size() + s.UndoError.size()
}

func (f *Failure) size() int {
	if f == nil {
		return 0
	}
	n := len(f.Step) + len(f.Code) + len(f.Message)
	for _, name := range f.NotUndone {
		n += len(name)
	}
	return n
}

func messageSize(m outbox.Message) int { return perEntry + m.Size() }

func auditSize(audit []AuditEntry) int {
	n := 0
	for _, a := range audit {
		n += perEntry + len(a.Actor) + len(a.Verb) + len(a.Step) + len(a.Note)
	}
	return n
}

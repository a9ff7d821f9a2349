package state

import (
	"maps"
	"slices"
	"time"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Clone is a deep copy: nothing in it is shared with r.
func (r *Record) Clone() *Record {
	c := *r
	c.Plan = slices.Clone(r.Plan)
	c.Steps = slices.Clone(r.Steps)
	for i := range c.Steps {
		c.Steps[i] = c.Steps[i].clone()
	}
	c.Input = slices.Clone(r.Input)
	c.Response = slices.Clone(r.Response)
	c.Failure = r.Failure.clone()
	if r.Cancel != nil {
		cancel := *r.Cancel
		c.Cancel = &cancel
	}
	c.Outbox = r.Outbox.Clone()
	c.Audit = slices.Clone(r.Audit)
	return &c
}

func (s StepRecord) clone() StepRecord {
	s.Output = slices.Clone(s.Output)
	s.Error = s.Error.clone()
	s.UndoError = s.UndoError.clone()
	return s
}

func (f *Failure) clone() *Failure {
	if f == nil {
		return nil
	}
	c := *f
	c.NotUndone = slices.Clone(f.NotUndone)
	return &c
}

// CloneMessage is a copy of an encoded message that shares nothing with m; its body is a []byte.
func CloneMessage(m outbox.Message) outbox.Message {
	m.Body = slices.Clone(m.Bytes())
	m.Attributes = maps.Clone(m.Attributes)
	return m
}

// Round puts every time of r, and its retention, at the grain in which records keep them: what a store does on the way in.
func (r *Record) Round() {
	r.LeaseUntil, r.NotBefore = Milli(r.LeaseUntil), Milli(r.NotBefore)
	r.CreatedAt, r.UpdatedAt = Milli(r.CreatedAt), Milli(r.UpdatedAt)
	r.ExpiresAt = CeilSecond(r.ExpiresAt)
	r.Retention = (r.Retention + time.Second - 1).Truncate(time.Second)
	for i := range r.Steps {
		r.Steps[i].round()
	}
	r.Failure.round()
	if r.Cancel != nil {
		r.Cancel.At = Milli(r.Cancel.At)
	}
	r.Outbox.ClaimedUntil = Milli(r.Outbox.ClaimedUntil)
	for i := range r.Outbox.Messages {
		r.Outbox.Messages[i].Time = Milli(r.Outbox.Messages[i].Time)
	}
	for i := range r.Audit {
		r.Audit[i].At = Milli(r.Audit[i].At)
	}
}

func (s *StepRecord) round() {
	s.StartedAt, s.EndedAt = Milli(s.StartedAt), Milli(s.EndedAt)
	s.Error.round()
	s.UndoError.round()
}

func (f *Failure) round() *Failure {
	if f != nil {
		f.At = Milli(f.At)
	}
	return f
}

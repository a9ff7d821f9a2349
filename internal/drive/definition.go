package drive

import "time"

// Definition is a snapshot of a declared saga, for package sagatest.
type Definition struct {
	Name     string
	Version  int
	Steps    []Step
	Deadline time.Duration
	// Previous are the declarations of other versions.
	Previous []Definition
}

// Names are the names of the steps, in their order.
func (d *Definition) Names() []string {
	out := make([]string, len(d.Steps))
	for i := range d.Steps {
		out[i] = d.Steps[i].Name
	}
	return out
}

// PivotName is the name of the pivot; empty without one.
func (d *Definition) PivotName() string {
	for i := range d.Steps {
		if d.Steps[i].Pivot {
			return d.Steps[i].Name
		}
	}
	return ""
}

// Find is the step of that name, and its position; nil and -1 when there is none.
func (d *Definition) Find(name string) (*Step, int) {
	for i := range d.Steps {
		if d.Steps[i].Name == name {
			return &d.Steps[i], i
		}
	}
	return nil, -1
}

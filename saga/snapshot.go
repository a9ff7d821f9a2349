package saga

import (
	"slices"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
)

// Snapshot is for package sagatest: the definition as it is declared now, with its types erased.
func (d *Definition[In, Out]) Snapshot() drive.Definition {
	s := drive.Definition{Name: d.p.name, Version: d.p.version, Steps: slices.Clone(d.p.steps), Deadline: d.p.deadline}
	for _, o := range d.previous {
		s.Previous = append(s.Previous, o.Snapshot())
	}
	return s
}

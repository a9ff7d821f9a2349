package compensate

import (
	"context"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// Undoer undoes and records single steps; package saga implements it on a record's holder. Its methods are called one
// after the other.
type Undoer interface {
	// Steps are the entries as they are recorded now.
	Steps() []state.StepRecord
	// Ready tells whether the next undo may start; an error says why not, and the loop rests.
	Ready(ctx context.Context) error
	// Undo undoes the step at position i and records that. When it is the last one, the same write ends the run, with
	// notUndone. Nil means undone and recorded; an error ends the loop.
	Undo(ctx context.Context, i int, last bool, notUndone []string) error
	// Finish ends a run that has nothing (left) to undo.
	Finish(ctx context.Context, notUndone []string) error
}

// Run goes backwards until the run has ended or an undo stops; then its error is returned and a later Run goes on from
// there.
func Run(ctx context.Context, u Undoer, means func(i int) Means) error {
	for {
		p := NewPlan(u.Steps(), means)
		if len(p.Undo) == 0 {
			return u.Finish(ctx, p.NotUndone)
		}
		if err := u.Ready(ctx); err != nil {
			return err
		}
		last := len(p.Undo) == 1
		if err := u.Undo(ctx, p.Undo[0], last, p.NotUndone); err != nil || last {
			return err
		}
	}
}

package saga

import (
	"context"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/internal/tame"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// sound is a user's error, or what stands for it when its methods panic, as those of a typed nil do: what came of a run
// is looked at with errors.Is, here and by callers. The class and the code of the error are kept.
func sound(err error) error {
	if tame.Is(err) {
		return err
	}
	return standIn(err)
}

// causeOf is why ctx has ended, which its owner may have put any error for.
func causeOf(ctx context.Context) error { return sound(context.Cause(ctx)) }

func standIn(err error) error {
	out := fmt.Errorf("an error of type %T that can't be looked at", err)
	class := classify(err)
	switch {
	case class.permanent:
		out = steps.Permanent(out)
	case class.delayed:
		out = steps.RetryAfter(class.delay, out)
	}
	if code := codeOf(err); code != "" {
		out = steps.WithCode(code, out)
	}
	return out
}

// codeOf is the code of an error whose methods may panic.
func codeOf(err error) (code string) {
	defer func() { _ = recover() }()
	return steps.Code(err)
}

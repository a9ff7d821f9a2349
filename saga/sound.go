package saga

import (
	"errors"
	"fmt"

	"github.com/tsuzuki-go/tsuzuki/steps"
)

// sound is a user's error, or what stands for it when its methods panic, as those of a typed nil do: what came of a run
// is looked at with errors.Is, here and by callers. The class and the code of the error are kept.
func sound(err error) (out error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			out = standIn(err)
		}
	}()
	_ = err.Error()
	var none *noError
	if errors.Is(err, errNone) || errors.As(err, &none) {
		return errNone // nobody has these
	}
	return err
}

type noError struct{ error }

var errNone = errors.New("no error")

func standIn(err error) error {
	out := fmt.Errorf("an error of type %T whose methods panic", err)
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

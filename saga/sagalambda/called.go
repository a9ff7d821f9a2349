package sagalambda

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/internal/tame"
	"github.com/tsuzuki-go/tsuzuki/saga"
)

// mishap is the error of a user's function that did not end as functions do, or whose own error can't be looked at. Its
// text may stand in a log: it tells types alone.
type mishap struct {
	who, what string
	stack     []byte // nil when the function has returned
}

// Error says who it was, and what became of it.
func (m *mishap) Error() string { return "sagalambda: " + m.text() }

func (m *mishap) text() string { return m.who + " " + m.what }

// called calls a user's function, and makes an error of what would take others along: a panic, which ends the
// environment and with it everything that is at work there, and runtime.Goexit, which ends the goroutine that has the
// other records to run. That goroutine is therefore never the function's own.
func called(who string, f func() error) error {
	answer := make(chan error, 1)
	go func() {
		returned, err := false, error(nil)
		defer func() {
			switch p := recover(); {
			case p != nil:
				err = &mishap{who, fmt.Sprintf("has panicked with a %T", p), debug.Stack()}
			case !returned:
				err = &mishap{who, "has ended its goroutine (runtime.Goexit)", debug.Stack()}
			}
			answer <- err
		}()
		err = sound(who, f())
		returned = true
	}()
	return <-answer
}

// told logs a function that did not return, and where it was.
func (c *config) told(what string, err error, fields ...zap.Field) {
	var m *mishap
	if errors.As(err, &m) && m.stack != nil {
		c.log.Error(what, append(fields, zap.Error(m), zap.ByteString("stack", m.stack))...)
	}
}

// sound is a user's error, or what stands for it when it can't be looked at: its methods panic, as those of a typed nil
// do; it holds a nil of a type that is looked into; or it says that it is every error there is. What came of a record is
// decided by errors.Is and errors.As, here and by callers.
func sound(who string, err error) error {
	switch {
	case !tame.Is(err):
		return &mishap{who: who, what: fmt.Sprintf("has returned an error of type %T that can't be looked at", err)}
	case holdsNil[saga.Error](err), holdsNil[Refusal](err), holdsNil[MalformedError](err), holdsNil[mishap](err):
		return &mishap{who: who, what: fmt.Sprintf("has returned an error of type %T that holds a nil one", err)}
	}
	return err
}

func holdsNil[T any, P interface {
	*T
	error
}](err error) bool {
	var found P
	return errors.As(err, &found) && found == nil
}

// Package tame is for errors of users' code, which are looked at with errors.Is and errors.As wherever they go: the methods of
// some panic, as those of a typed nil do, and others say that they are every error there is.
package tame

import (
	"errors"
	"fmt"
)

type nobodys struct{ error }

var errNobodys = errors.New("nobody's error")

// Is tells whether the error can be looked at.
func Is(err error) (tame bool) {
	if err == nil {
		return true
	}
	defer func() {
		if recover() != nil {
			tame = false
		}
	}()
	_ = err.Error()
	var none *nobodys
	return !errors.Is(err, errNobodys) && !errors.As(err, &none) // which go through all that it wraps
}

// Error is err, or what stands for it when it can't be looked at.
func Error(err error) error {
	if Is(err) {
		return err
	}
	return fmt.Errorf("an error of type %T that can't be looked at", err)
}

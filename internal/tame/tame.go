// Package tame is for errors of users' code, which are looked at with errors.Is and errors.As wherever they go: the methods of
// some panic, as those of a typed nil do.
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
	defer func() { tame = recover() == nil }()
	var none *nobodys
	_, _, _ = err.Error(), errors.Is(err, errNobodys), errors.As(err, &none) // which goes through all that it wraps
	return true
}

// Error is err, or what stands for it when it can't be looked at.
func Error(err error) error {
	if Is(err) {
		return err
	}
	return fmt.Errorf("an error of type %T whose methods panic", err)
}

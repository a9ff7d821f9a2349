//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlite

import "time"

func openTurn(string, time.Duration) turn { return noTurn{} }

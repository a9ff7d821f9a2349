package statetest

import "time"

// SetPatience shortens the wait for what never comes. Not while the suite runs.
func SetPatience(d time.Duration) { patience = d }

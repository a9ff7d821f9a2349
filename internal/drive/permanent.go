package drive

// Permanent is the mark that steps.Permanent puts on an error. It is here so that the engine can tell the mark itself from
// one that is found somewhere in an error.
type Permanent struct{ Err error }

// Error is the marked error's.
func (e *Permanent) Error() string { return e.Err.Error() }

// Unwrap gives the marked error.
func (e *Permanent) Unwrap() error { return e.Err }

//go:build !unix

package sqlite

// syncData: there is no choice here.
func syncData() {}

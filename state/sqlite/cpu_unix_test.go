//go:build unix

package sqlite_test

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used of the processors, which other programs on the machine disturb less than the
// time that passes.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

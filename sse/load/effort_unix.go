//go:build linux || darwin

package load

import "golang.org/x/sys/unix"

// ownCPUTime returns the CPU time of this process in ns, in user and kernel mode.
func ownCPUTime() int64 {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

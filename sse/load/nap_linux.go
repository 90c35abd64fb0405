package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps for d in the kernel, which is late by some 50 µs. The runtime's
// own timers round up to a whole ms while nothing else is to do, and a null
// server that writes a ms's events at once paces nothing.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&t, nil)
}

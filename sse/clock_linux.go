package sse

import "golang.org/x/sys/unix"

// systemClock is the clock behind Go's monotonic readings on Linux.
const systemClock = "CLOCK_MONOTONIC"

func readSystemClock() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, err
	}
	return t.Nano(), nil
}

package sse

import "golang.org/x/sys/unix"

// systemClock is the clock behind Go's monotonic readings on macOS. Its
// CLOCK_MONOTONIC goes on while the machine sleeps and Go's doesn't.
const systemClock = "CLOCK_UPTIME_RAW"

func readSystemClock() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_UPTIME_RAW, &t); err != nil {
		return 0, err
	}
	return t.Nano(), nil
}

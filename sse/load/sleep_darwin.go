package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// On macOS CLOCK_MONOTONIC goes on while the machine sleeps.
const (
	clockWithSleep = unix.CLOCK_MONOTONIC
	clockAwake     = unix.CLOCK_UPTIME_RAW
)

func readClock(id int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(id, &t)
	return time.Duration(t.Nano()), err
}

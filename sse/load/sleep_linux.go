package load

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	clockWithSleep = unix.CLOCK_BOOTTIME
	clockAwake     = unix.CLOCK_MONOTONIC
)

func readClock(id int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(id, &t)
	return time.Duration(t.Nano()), err
}

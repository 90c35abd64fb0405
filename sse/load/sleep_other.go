//go:build !linux && !darwin

package load

import (
	"errors"
	"time"
)

const clockWithSleep, clockAwake = 0, 0

func readClock(int32) (time.Duration, error) { return 0, errors.ErrUnsupported }

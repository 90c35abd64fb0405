package load

import "time"

// sleepSlack is how much the two clocks behind asleep may drift between two
// readings without the machine having slept. They are read one after the
// other, so a busy machine lets some time pass between them.
const sleepSlack = 500 * time.Millisecond

// asleep returns how long the machine has slept since it was started. Stamps
// stand still while it sleeps, so a configuration that was interrupted so has
// numbers that nobody saw; it is invalid. 0 where the system doesn't tell.
func asleep() time.Duration {
	whole, err := readClock(clockWithSleep)
	if err != nil {
		return 0
	}
	awake, err := readClock(clockAwake)
	if err != nil {
		return 0
	}
	return whole - awake
}

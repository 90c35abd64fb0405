//go:build unix

package load

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockMachine takes the machine-wide lock, if nobody holds it. The lock goes
// with the process.
func lockMachine() (file *os.File, held bool) {
	file, err := os.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		// Another user's, perhaps: reading is enough for a lock.
		if file, err = os.Open(lockName); err != nil {
			return nil, false
		}
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		file.Close()
		return nil, false
	}
	return file, true
}

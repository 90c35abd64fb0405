//go:build unix

package load

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockMachine takes the machine-wide lock. It fails with errLocked if another
// process holds it. The lock goes with the process.
func lockMachine() (*os.File, error) {
	file, err := os.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		// Another user's, perhaps: reading is enough for a lock.
		var readErr error
		if file, readErr = os.Open(lockName); readErr != nil {
			return nil, err
		}
	}
	if err := lockFile(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func lockFile(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

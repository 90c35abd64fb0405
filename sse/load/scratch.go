package load

import (
	"errors"
	"os"
	"path/filepath"
)

// scratchPattern names the directories of Scratch within the system's
// temporary one, scratchLock the file in each that its owner keeps locked.
const (
	scratchPattern = "servebench-run-*"
	scratchLock    = "lock"
)

// Scratch makes a temporary directory for a server's program, output and log.
// Those of earlier processes that were killed, and so couldn't remove theirs,
// are removed first. remove is called at the end; where the system has no
// locks that end with a process, nobody else's is touched.
func Scratch() (dir string, remove func(), err error) {
	sweep()
	if dir, err = os.MkdirTemp("", scratchPattern); err != nil {
		return "", nil, err
	}
	// Under its own name only once it is locked, or another process might
	// find it free.
	name := filepath.Join(dir, scratchLock)
	lock, err := os.Create(name + ".new")
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	if err = lockFile(lock); err == nil {
		err = os.Rename(lock.Name(), name)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		lock.Close()
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		os.RemoveAll(dir)
		lock.Close()
	}, nil
}

// sweep removes the directories whose owner is gone. What can't be removed,
// another user's say, stays.
func sweep() {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPattern, scratchLock))
	if err != nil {
		return
	}
	for _, name := range locks {
		lock, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if lockFile(lock) == nil {
			os.RemoveAll(filepath.Dir(name))
		}
		lock.Close()
	}
}

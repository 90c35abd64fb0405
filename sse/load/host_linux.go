package load

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// allowedCPUs counts the CPUs of the process's affinity mask.
func allowedCPUs() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

package load

import (
	"runtime"
	"unsafe"

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

// firstCPU is the first CPU of the mask.
func firstCPU() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0
	}
	for cpu := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	return 0
}

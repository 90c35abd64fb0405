package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func monotonic() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // never fails for this clock
	return t.Nano()
}

// epollWait is epoll_wait with a limit in ns: ms are too coarse for a
// schedule.
func epollWait(epoll int, events []unix.EpollEvent, limit *unix.Timespec) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(limit)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// processCPU returns the CPU time in ns that a live process has used, all its
// threads, those that have ended too; false once it is gone.
func processCPU(pid int) (int64, bool) {
	var t unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED of a process, as in clock_getcpuclockid(3)
	if unix.ClockGettime(int32(^pid<<3|scheduled), &t) != nil {
		return 0, false
	}
	return t.Nano(), true
}

// descendants returns pid and all processes below it.
func descendants(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", out[i]))
		for _, task := range tasks {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", out[i], task.Name()))
			for child := range strings.FieldsSeq(string(children)) {
				if n, err := strconv.Atoi(child); err == nil {
					out = append(out, n)
				}
			}
		}
	}
	return out
}

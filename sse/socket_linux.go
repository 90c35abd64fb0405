//go:build !race

package sse

import (
	"syscall"
	"unsafe"
)

// readSocket and writeSocket are for sockets that never block: the runtime
// need not be told that the thread may be gone for a while, which would wake
// its monitor for every token.

func readSocket(fd int, p []byte) (int, error) {
	return transfer(syscall.SYS_READ, fd, p)
}

func writeSocket(fd int, p []byte) (int, error) {
	return transfer(syscall.SYS_WRITE, fd, p)
}

func transfer(call uintptr, fd int, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

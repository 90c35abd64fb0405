//go:build unix

package sse

import (
	"net"
	"syscall"
)

// quiet reports whether a read of conn would have to wait. It is true for
// what isn't a socket.
func quiet(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		waits = err == syscall.EAGAIN
	})
	return err == nil && waits
}

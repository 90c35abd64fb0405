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
	err = raw.Control(func(fd uintptr) { waits = quietSocket(int(fd)) })
	return err == nil && waits
}

// quietSocket is quiet for a socket that doesn't block.
func quietSocket(fd int) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(fd, one[:], syscall.MSG_PEEK)
	return err == syscall.EAGAIN
}

func closeSocket(fd int) { syscall.Close(fd) }

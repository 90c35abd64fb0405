//go:build !linux

package main

import (
	"errors"
	"io"
)

// errLinux is what the program says elsewhere: the server's epoll and the CPU
// time of another process are Linux's.
var errLinux = errors.New("accuracy: it runs on Linux only")

func serve(Schedule, io.Writer) error { return errLinux }
func monotonic() int64                { return 0 }
func processCPU(int) (int64, bool)    { return 0, false }
func descendants(pid int) []int       { return []int{pid} }

//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a write beyond the file size limit an error like any
// other of the log, where its signal would end the program with a dump.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

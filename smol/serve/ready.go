package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"servebench/sse"
)

// readyFile returns the descriptor of -ready-fd, if it is one.
func readyFile(fd int) (*os.File, error) {
	f := os.NewFile(uintptr(fd), "ready-fd")
	if f == nil {
		return nil, fmt.Errorf("-ready-fd %d isn't a descriptor", fd)
	}
	if _, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("-ready-fd %d isn't open: the starting program passes it on (in Go, exec.Cmd.ExtraFiles): %w", fd, err)
	}
	return f, nil
}

// announce writes r as one line and closes f.
func announce(f *os.File, r sse.Ready) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("-ready-fd: %w", err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("-ready-fd: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("-ready-fd: %w", err)
	}
	return nil
}

// quiet is net/http's log: to stderr if asked for.
func quiet(verbose bool, stderr io.Writer) *log.Logger {
	if !verbose {
		stderr = io.Discard
	}
	return log.New(stderr, "serve: ", 0)
}

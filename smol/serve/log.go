package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"servebench/verify"
)

// servedLog is the server's testimony: a line for each request, written with
// one write, so that a kill leaves whole lines and at most one part of one.
type servedLog struct {
	mu   sync.Mutex
	file *os.File
	err  error // the first; nothing is written after it
	fail context.CancelCauseFunc
}

// openLog opens the log for appending. fail is called when a line can't be
// written: what such a server answers has no witness, so it shall not go on.
func openLog(path string, fail context.CancelCauseFunc) (*servedLog, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("-log: %w", err)
	}
	return &servedLog{file: f, fail: fail}, nil
}

func (l *servedLog) write(s verify.Served) {
	line, err := json.Marshal(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		l.err = fmt.Errorf("-log: request %s can't be recorded: %w", s.ID, err)
		l.fail(l.err)
	}
}

func (l *servedLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); err != nil && l.err == nil {
		return fmt.Errorf("-log: %w", err)
	}
	return nil
}

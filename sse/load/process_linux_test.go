package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one of the machine's, as /proc tells it.
type process struct {
	pid, parent int
	program     string
}

// processes returns those that runs of p have started and that still live.
func (p *place) processes() (out []process) {
	mark := []byte("TMPDIR=" + p.tmp)
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range names {
		environ, err := os.ReadFile(filepath.Join(name, "environ"))
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		program, err1 := os.Readlink(filepath.Join(name, "exe"))
		stat, err2 := os.ReadFile(filepath.Join(name, "stat"))
		if err1 != nil || err2 != nil {
			continue // it ends just now
		}
		var q process
		q.program = program
		q.pid, _ = strconv.Atoi(filepath.Base(name))
		// The name in brackets may hold anything; state and parent follow it.
		rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		q.parent, _ = strconv.Atoi(rest[1])
		out = append(out, q)
	}
	return out
}

// server returns the pid of the server that a run has, 0 for none.
func (a *attempt) server() int {
	for _, q := range a.place.processes() {
		if q.parent == a.command.Process.Pid && filepath.Base(q.program) == filepath.Base(a.place.server) {
			return q.pid
		}
	}
	return 0
}

// mustServer is server of a run that has one.
func (a *attempt) mustServer() int {
	a.place.t.Helper()
	pid := a.server()
	if pid == 0 { // which as a pid would mean this process's whole group
		a.place.t.Fatal("the run has no server")
	}
	return pid
}

// noOrphan checks that nothing which a run started is left, after a moment to
// notice that the run is gone.
func (p *place) noOrphan() {
	p.t.Helper()
	var left []process
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		if left = p.processes(); len(left) == 0 {
			return
		}
	}
	for _, q := range left {
		p.t.Errorf("%s (pid %d) outlives its run", q.program, q.pid)
		signal(p.t, q.pid, syscall.SIGKILL)
	}
}

// signal sends one to a process, which may be gone.
func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(fmt.Errorf("signal %v to %d: %w", s, pid, err))
	}
}

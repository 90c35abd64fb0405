package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// Process is a measured server that this process started. It ends with this
// process, even if that is killed: its standard input is a pipe that closes,
// and Linux kills it in case it has been stopped and can't notice.
type Process struct {
	Ready  sse.Ready
	Binary verify.File

	command *exec.Cmd
	stdin   io.Closer
	dir     string // of output and log
	output  string // path of what it prints
	log     string // path of its log
	logRead int64
	started time.Time
	readyAt time.Time
	dead    chan struct{} // closed when it has ended
	exit    error         // of Wait, once dead is closed
}

// ServerOptions say which server to start and how.
type ServerOptions struct {
	Path    string        // of the program
	Args    []string      // before those that StartServer adds
	Dir     string        // for its output and its log; must exist
	Name    string        // of these files, without an ending
	Timeout time.Duration // until it must be ready; 0 means 2 minutes
}

// StartServer starts a program that takes the flags -listen, -ready-fd, -log
// and -exit-with-stdin as smol/serve does, and returns when it is ready. A
// program that ends before, or isn't ready in time, gives an error with the
// end of its output.
func StartServer(ctx context.Context, o ServerOptions) (*Process, error) {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	p := &Process{
		dir:    o.Dir,
		output: filepath.Join(o.Dir, o.Name+".out"),
		log:    filepath.Join(o.Dir, o.Name+".log"),
		dead:   make(chan struct{}),
	}
	path, err := filepath.Abs(o.Path) // never one of PATH
	if err != nil {
		return nil, fmt.Errorf("load: server: %w", err)
	}
	if p.Binary, err = verify.HashFile(path); err != nil {
		return nil, fmt.Errorf("load: server: %w", err)
	}
	output, err := os.Create(p.output)
	if err != nil {
		return nil, fmt.Errorf("load: server's output: %w", err)
	}
	defer output.Close()
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer ready.Close()
	defer readyEnd.Close()
	args := append(o.Args[:len(o.Args):len(o.Args)], "-listen", "127.0.0.1:0", "-ready-fd", "3", "-log", p.log, "-exit-with-stdin")
	p.command = exec.Command(path, args...)
	p.command.Stdout, p.command.Stderr = output, output
	p.command.ExtraFiles = []*os.File{readyEnd}
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	p.started = time.Now()
	startErr := make(chan error)
	go func() {
		// The kernel counts the death of the thread that started a child as
		// its parent's, see dieWithParent: this one lives as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(p.command)
		err := p.command.Start()
		startErr <- err
		if err == nil {
			p.exit = p.command.Wait()
			close(p.dead)
		}
	}()
	if err := <-startErr; err != nil {
		return nil, fmt.Errorf("load: server: %w", err)
	}
	readyEnd.Close()
	type answer struct {
		line []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(ready, 1<<20)).ReadBytes('\n')
		answered <- answer{line, err}
	}()
	fail := func(format string, args ...any) (*Process, error) {
		p.Stop()
		return nil, fmt.Errorf("load: server %s: %w%s", filepath.Base(o.Path), fmt.Errorf(format, args...), p.said())
	}
	timeout := time.NewTimer(o.Timeout)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return fail("%w", context.Cause(ctx))
	case <-timeout.C:
		return fail("not ready after %v", o.Timeout)
	case a := <-answered:
		if a.err != nil {
			select { // its end says more than the closed pipe
			case <-p.dead:
			case <-time.After(5 * time.Second):
			}
			return fail("it ended before it was ready (%v)", p.state())
		}
		if err := json.Unmarshal(a.line, &p.Ready); err != nil {
			return fail("its ready line: %w", err)
		}
	}
	p.readyAt = time.Now()
	p.Ready.Server.PID = p.command.Process.Pid
	return p, nil
}

// Dead is closed when the server has ended.
func (p *Process) Dead() <-chan struct{} { return p.dead }

// Err returns why the server ended, or nil while it lives.
func (p *Process) Err() error {
	select {
	case <-p.dead:
		return fmt.Errorf("load: the server (pid %d) ended: %s%s", p.command.Process.Pid, p.state(), p.said())
	default:
		return nil
	}
}

func (p *Process) state() string {
	select {
	case <-p.dead:
		if p.exit == nil {
			return "exit status 0"
		}
		return p.exit.Error()
	default:
		return "it still runs"
	}
}

// said returns the end of the server's output, for an error. One that says
// nothing may have had nowhere to say it.
func (p *Process) said() string {
	data, err := os.ReadFile(p.output)
	data = bytes.TrimSpace(data)
	if err != nil || len(data) == 0 {
		if err := takesMore(p.dir); err != nil {
			return fmt.Sprintf("\nwhat it had to say may be lost: %v", err)
		}
		return ""
	}
	const most = 2000
	if len(data) > most {
		data = append([]byte("…"), data[len(data)-most:]...)
	}
	return "\n" + string(data)
}

// takesMore tells whether a file can be written in dir, by writing one.
func takesMore(dir string) error {
	file, err := os.CreateTemp(dir, "probe-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(make([]byte, 4096))
	return errors.Join(err, file.Close())
}

// Kill ends the server by force, as is right for one that has gone silent.
func (p *Process) Kill() {
	p.command.Process.Kill()
	<-p.dead
}

// Stop ends the server: politely, and after ten seconds by force.
func (p *Process) Stop() {
	p.stdin.Close()
	select {
	case <-p.dead:
		return
	case <-time.After(10 * time.Second):
	}
	p.Kill()
}

// readLog returns the records that the server has logged since the last
// call, on the absolute clock. Half a line is left for the next call.
func (p *Process) readLog() ([]*verify.Served, error) {
	file, err := os.Open(p.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load: server's log: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.NewSectionReader(file, p.logRead, 1<<62))
	if err != nil {
		return nil, fmt.Errorf("load: server's log: %w", err)
	}
	var out []*verify.Served
	for {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return out, nil
		}
		s := new(verify.Served)
		if err := json.Unmarshal(line, s); err != nil {
			return out, fmt.Errorf("load: server's log at byte %d: %w", p.logRead, err)
		}
		p.logRead += int64(len(line)) + 1
		data = rest
		out = append(out, s)
	}
}

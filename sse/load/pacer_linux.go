package load

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newPacer returns a filePacer, or where the kernel has no such timers, a
// timerPacer.
func newPacer() pacer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newTimerPacer()
	}
	p := &filePacer{fd: fd, file: os.NewFile(uintptr(fd), "timerfd"), fired: make(chan struct{}, 1), timer: newTimerPacer().timer}
	go p.watch()
	return p
}

// filePacer waits for two timers and takes the first. One is the kernel's
// (timerfd), a file like any other: an idle runtime, which sleeps in its poller,
// wakes up when it fires, to the kernel's precision. The other is the runtime's,
// for a busy runtime looks at files only when it has nothing else to do, but at
// its timers at every turn.
type filePacer struct {
	fd    int
	file  *os.File
	fired chan struct{}
	timer *time.Timer
}

// watch hands on that the kernel's timer has fired, until the file is closed.
func (p *filePacer) watch() {
	var expirations [8]byte
	for {
		if _, err := p.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case p.fired <- struct{}{}:
		default:
		}
	}
}

func (p *filePacer) until(ctx context.Context, t time.Time) {
	defer p.timer.Stop()
	for ctx.Err() == nil {
		wait := time.Until(t)
		if wait <= 0 {
			return
		}
		p.timer.Reset(wait)
		once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}
		unix.TimerfdSettime(p.fd, 0, &once, nil) // if it fails there is the other
		select {
		case <-p.timer.C:
		case <-p.fired: // of an earlier wait, maybe
		case <-ctx.Done():
		}
	}
}

func (p *filePacer) close() { p.file.Close() }

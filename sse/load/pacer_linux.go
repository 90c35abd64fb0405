package load

import (
	"context"
	"encoding/binary"
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
	return &filePacer{fd: fd, file: os.NewFile(uintptr(fd), "timerfd"), rest: newTimerPacer()}
}

// filePacer waits on a timer of the kernel (timerfd) as on any other file: the
// runtime's poller wakes up when it fires, to the kernel's precision and not to
// the millisecond of its own timers.
type filePacer struct {
	fd   int
	file *os.File
	rest *timerPacer // if the file fails
}

func (p *filePacer) until(ctx context.Context, t time.Time) {
	stop := context.AfterFunc(ctx, func() { p.file.SetReadDeadline(time.Now()) })
	defer stop()
	var expired [8]byte
	for ctx.Err() == nil {
		wait := time.Until(t)
		if wait <= 0 {
			return
		}
		once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}
		if err := unix.TimerfdSettime(p.fd, 0, &once, nil); err != nil {
			break
		}
		if _, err := p.file.Read(expired[:]); err != nil {
			break
		}
		if binary.NativeEndian.Uint64(expired[:]) == 0 {
			break
		}
	}
	p.rest.until(ctx, t)
}

func (p *filePacer) close() {
	p.file.Close()
	p.rest.close()
}

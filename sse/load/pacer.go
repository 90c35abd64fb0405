package load

import (
	"context"
	"time"
)

// pacer lets time pass until a request is due, without spinning: a core that
// spins is taken from the server, and from the streams whose stamps it delays.
// It is used by one goroutine at a time.
type pacer interface {
	// until returns at t, or some time later, or when ctx is done.
	until(ctx context.Context, t time.Time)
	close()
}

// timerPacer sleeps on a timer of Go's runtime. Those hold with the fake time
// of a testing/synctest bubble. On Linux the runtime waits for them in whole
// milliseconds (epoll_wait), so that they are up to one late where nothing else
// wakes it.
type timerPacer struct{ timer *time.Timer }

func newTimerPacer() *timerPacer {
	p := &timerPacer{time.NewTimer(0)}
	p.timer.Stop()
	return p
}

func (p *timerPacer) until(ctx context.Context, t time.Time) {
	wait := time.Until(t)
	if wait <= 0 || ctx.Err() != nil {
		return
	}
	p.timer.Reset(wait)
	select {
	case <-p.timer.C:
	case <-ctx.Done():
		p.timer.Stop()
	}
}

func (p *timerPacer) close() { p.timer.Stop() }

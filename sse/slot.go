package sse

import (
	"context"
	"errors"
	"sync"
)

// errQueueFull is returned by slot.join when no more may wait.
var errQueueFull = errors.New("sse: the queue is full")

// slot is the right to use the Generator: held by one request at a time and
// handed on in the order in which requests joined. A request that leaves the
// queue doesn't hold it up.
//
// One lock covers the order and the stamps, so a request that joined before
// another never has a later stamp, and a slot's begin is never before the end
// of the one before it.
type slot struct {
	now   func() int64
	limit int // of the queue, without the holder

	mu    sync.Mutex
	held  bool
	queue []*ticket // in the order of arrival; all wait
}

// ticket is one request's place: in the queue until granted is closed.
type ticket struct {
	slot    *slot
	granted chan struct{}
	joined  int64 // stamp; set by join
	begun   int64 // stamp; valid once granted is closed
}

// join takes a place at the end of the queue, which may be the slot itself.
// Every ticket is given back with leave or, after a successful wait, release.
func (s *slot) join() (*ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &ticket{slot: s, granted: make(chan struct{}), joined: s.now()}
	if !s.held {
		s.held = true
		t.begun = s.now()
		close(t.granted)
		return t, nil
	}
	if len(s.queue) >= s.limit {
		return nil, errQueueFull
	}
	s.queue = append(s.queue, t)
	return t, nil
}

// wait returns nil when the slot is the ticket's. If ctx ends first it leaves
// the queue and returns the cause; a slot that was granted in the same moment
// is kept, for the caller to look at ctx and release it.
func (t *ticket) wait(ctx context.Context) error {
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
	}
	s := t.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.queue {
		if other == t {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return context.Cause(ctx)
		}
	}
	return nil
}

// release ends the ticket's hold, hands the slot to the next in the queue and
// returns the stamp of the end. It is called once, by the holder.
func (t *ticket) release() int64 {
	s := t.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.now()
	if len(s.queue) == 0 {
		s.held = false
		return ended
	}
	next := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	next.begun = s.now()
	close(next.granted)
	return ended
}

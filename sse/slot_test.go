package sse

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Many come and some leave, at random but seeded moments: those who stay have
// the slot in the order in which they joined, never two at once, and it is
// never free while somebody waits.
func TestSlotOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		clock := NewClock()
		s := &slot{now: clock.Now, limit: 1000}
		type hold struct{ joined, begun, ended int64 }
		var mu sync.Mutex
		var holds []hold // in the order of their begin
		var all sync.WaitGroup
		for range 300 {
			time.Sleep(time.Duration(1 + random.IntN(1000)))
			patience := time.Duration(random.IntN(40_000))
			work := time.Duration(random.IntN(1500))
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				ticket, err := s.join()
				if err != nil {
					t.Error(err)
					return
				}
				if err := ticket.wait(ctx); err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("wait = %v, want the context's cause", err)
					}
					return
				}
				mu.Lock()
				holds = append(holds, hold{ticket.joined, ticket.begun, 0})
				i := len(holds) - 1
				mu.Unlock()
				time.Sleep(work)
				mu.Lock()
				defer mu.Unlock()
				if i != len(holds)-1 {
					t.Error("two hold the slot at once")
				}
				holds[i].ended = ticket.release()
			})
			synctest.Wait()
		}
		all.Wait()
		if left := 300 - len(holds); left < 20 || len(holds) < 100 {
			t.Fatalf("%d held the slot and %d left, want enough of both for a test", len(holds), 300-len(holds))
		}
		for i, h := range holds[1:] {
			before := holds[i]
			if h.joined <= before.joined {
				t.Errorf("hold %d joined at %d, the one before it at %d: out of order", i+1, h.joined, before.joined)
			}
			if want := max(h.joined, before.ended); h.begun != want {
				t.Errorf("hold %d begun at %d, want %d: the later of its joining and the end before it", i+1, h.begun, want)
			}
		}
		if s.held || len(s.queue) != 0 {
			t.Errorf("at the end: held %v, %d in the queue, want a free slot", s.held, len(s.queue))
		}
	})
}

func TestSlotLimit(t *testing.T) {
	s := &slot{now: func() int64 { return 1 }, limit: 2}
	var tickets []*ticket
	for range 3 {
		ticket, err := s.join()
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	if _, err := s.join(); !errors.Is(err, errQueueFull) {
		t.Errorf("fourth join = %v, want %v", err, errQueueFull)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tickets[1].wait(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v, want %v", err, context.Canceled)
	}
	if _, err := s.join(); err != nil {
		t.Errorf("join after one left = %v, want a place", err)
	}
	tickets[0].release()
	if err := tickets[2].wait(context.Background()); err != nil {
		t.Errorf("wait = %v, want the slot", err)
	}
}

// A slot that is granted while its waiter gives up is the waiter's to release.
func TestSlotGrantedWhileLeaving(t *testing.T) {
	s := &slot{now: func() int64 { return 1 }, limit: 2}
	first, _ := s.join()
	second, _ := s.join()
	third, _ := s.join()
	first.release()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 { // whichever way the select goes
		if err := second.wait(gone); err != nil {
			t.Fatalf("wait = %v, want the slot that was granted", err)
		}
	}
	second.release()
	if err := third.wait(context.Background()); err != nil {
		t.Errorf("wait = %v, want the slot", err)
	}
}

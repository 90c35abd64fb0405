package sse

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockStartsAboveZeroAndIsExactInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		first := c.Now()
		if first != 1 {
			t.Errorf("first stamp = %d, want 1", first)
		}
		time.Sleep(1234567 * time.Nanosecond)
		if got := c.Now() - first; got != 1234567 {
			t.Errorf("stamps 1234567 ns apart differ by %d", got)
		}
		at := time.Now()
		time.Sleep(time.Second)
		if got, want := c.Stamp(at), first+1234567; got != want {
			t.Errorf("Stamp(earlier) = %d, want %d", got, want)
		}
	})
}

// Two clocks made at different moments must name the same moment within
// their bounds: that is all that ties a server's stamps to its client's.
func TestClocksAgreeWithinTheirBounds(t *testing.T) {
	if systemClock == processClock {
		t.Skip("no shared clock on this system")
	}
	a := NewClock()
	time.Sleep(3 * time.Millisecond)
	b := NewClock()
	moment := time.Now()
	atA, atB := a.Absolute(a.Stamp(moment)), b.Absolute(b.Stamp(moment))
	bound := a.Evidence().ErrorNS + b.Evidence().ErrorNS
	if d := atA - atB; d < -bound || d > bound {
		t.Errorf("one moment is %d and %d, %d ns apart, want at most %d", atA, atB, d, bound)
	}
	if bound > int64(time.Millisecond) {
		t.Errorf("bound = %d ns, want less than 1 ms", bound)
	}
	if e := a.Evidence(); e.Name != systemClock || e.BaseNS <= 0 {
		t.Errorf("Evidence() = %+v, want name %q and a base above 0", e, systemClock)
	}
}

// An absolute stamp is what the system's clock itself would have said.
func TestClockMatchesTheSystemClock(t *testing.T) {
	if systemClock == processClock {
		t.Skip("no shared clock on this system")
	}
	c := NewClock()
	for range 100 {
		before, err := readSystemClock()
		if err != nil {
			t.Fatal(err)
		}
		got := c.Absolute(c.Now())
		after, err := readSystemClock()
		if err != nil {
			t.Fatal(err)
		}
		bound := c.Evidence().ErrorNS + 1
		if got < before-bound || got > after+bound {
			t.Fatalf("Absolute(Now()) = %d, want in [%d, %d] ± %d", got, before, after, bound)
		}
	}
}

package sse

import (
	"time"

	"servebench/verify"
)

// Clock gives the stamps of one process: ns since a base, as int64, from
// Go's monotonic clock, so that they hold still with fake time in a
// testing/synctest bubble and a step of the wall clock can't touch them. The
// system's own monotonic clock is read once, at the base; with it, stamps of
// two processes on one machine can be laid beside each other.
//
// A Clock is safe for concurrent use. Make it with NewClock.
type Clock struct {
	base    time.Time // 1 ns before it is stamp 0
	name    string
	baseNS  int64
	errorNS int64
}

// clockTries is how often NewClock reads the system's clock to keep the
// reading with the smallest bound.
const clockTries = 16

// NewClock makes a clock whose stamp 0 lies just before the call.
func NewClock() *Clock {
	c := &Clock{base: time.Now(), name: systemClock}
	if c.name == processClock {
		return c
	}
	// Each reading lies between two of Go's clock; its middle is taken, and
	// half the distance is what it may be off by.
	narrowest := int64(-1)
	for range clockTries {
		before := time.Now()
		system, err := readSystemClock()
		width := int64(time.Since(before))
		if err != nil {
			c.name, c.baseNS, c.errorNS = processClock, 0, 0
			return c
		}
		if narrowest >= 0 && width >= narrowest {
			continue
		}
		narrowest = width
		middle := int64(before.Sub(c.base)) + 1 + width/2 // as a stamp
		c.baseNS = system - middle
		c.errorNS = (width + 1) / 2
	}
	return c
}

// Now returns the stamp of this moment in ns, always above 0. It never goes
// backward; two calls may give the same stamp.
func (c *Clock) Now() int64 { return int64(time.Since(c.base)) + 1 } // Since reads no wall clock

// Stamp returns t as a stamp. t must carry a monotonic reading of this
// process, as time.Now gives it.
func (c *Clock) Stamp(t time.Time) int64 { return int64(t.Sub(c.base)) + 1 }

// Absolute returns a stamp as ns on the named clock of Evidence. For the
// clock "process" it is the stamp itself.
func (c *Clock) Absolute(stamp int64) int64 { return c.baseNS + stamp }

// Evidence says in the evidence's terms how this clock's stamps are read.
func (c *Clock) Evidence() verify.Clock {
	return verify.Clock{Name: c.name, BaseNS: c.baseNS, ErrorNS: c.errorNS}
}

// processClock names a clock that no other process can read.
const processClock = "process"
